// A view that asks for its data itself: `load` gets it, `draw` shows it, again and again.
export function living(context, { load, draw, every = 5 }) {
  let ended = false, loading = null, loadedAt = 0;
  const shown = (...found) => { draw(...found); context.ready(); };
  const refresh = async () => {
    loading?.abort();
    const mine = (loading = new AbortController());
    try {
      const data = await load(mine.signal);
      if (!ended && loading === mine) shown(data);
    } catch (error) {
      if (!ended && error.name !== "AbortError" && loading === mine) shown(null, error);
    } finally {
      if (loading === mine) loading = null;
      loadedAt = Date.now();
    }
  };
  refresh();
  return {
    refresh,
    tick: () => { if (!loading && Date.now() - loadedAt > every * 1000) refresh(); },
    close: () => { ended = true; loading?.abort(); },
  };
}
