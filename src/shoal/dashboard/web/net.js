// Asking the dashboard: JSON in, JSON out; errors have a sentence for people.

let session = null;

async function fetched(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Error("The dashboard does not answer. Is it still running?");
  }
  if (answer.status === 401) location.assign("/login");
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw Object.assign(new Error(value.error ?? `HTTP ${answer.status}`), { status: answer.status });
  return value;
}

const query = (params) => new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));

export const get = (path, params = {}, signal) => fetched(`/api/${path}?${query(params)}`, { signal });

export async function open() {
  session = await fetched("/api/session");
  return session;
}

export async function post(path, body = null) {
  const send = () => fetched(path, { method: "POST", headers: { "X-Shoal-Csrf": session.csrf }, body: body && JSON.stringify(body) });
  try {
    return await send();
  } catch (error) {
    if (error.status !== 403) throw error;
    await open(); // the dashboard was started again: its secret is another one
    return send();
  }
}

export const act = (crawl, action) => post(`/api/act?${query({ crawl })}`, action);
