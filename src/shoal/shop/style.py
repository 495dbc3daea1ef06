"""How the shop looks."""

CSS = """\
* { box-sizing: border-box; margin: 0 }
body { font: 16px/1.5 Georgia, serif; color: #1d3440; background: #f6f3ec }
a { color: inherit }
header, footer { background: #1d3440; color: #f6f3ec; padding: 1rem 5vw }
header { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: baseline }
.name { font-size: 1.5rem; font-weight: bold; text-decoration: none; letter-spacing: .03em }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem }
nav a, footer a { text-decoration: none; opacity: .85 }
nav a:hover, footer a:hover { opacity: 1; text-decoration: underline }
footer { display: flex; flex-wrap: wrap; gap: 1.25rem; margin-top: 3rem; font-size: .9rem }
main { max-width: 62rem; margin: 2rem auto; padding: 0 1.25rem }
h1 { font-size: 2rem; line-height: 1.2; margin-bottom: .5rem }
h2 { margin: 2.5rem 0 0; font-size: 1.25rem }
.shelf { list-style: none; padding: 0; margin-top: 1.25rem; display: grid; gap: 1.25rem;
  grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)) }
.shelf li { background: #fff; border-radius: .5rem; overflow: hidden; box-shadow: 0 1px 4px #1d344026 }
.shelf li:hover { box-shadow: 0 4px 14px #1d344040 }
.shelf a { text-decoration: none }
.shelf h3, .shelf p { padding: 0 1rem; font-size: 1rem }
.shelf h3 { padding-top: .75rem }
.shelf p { padding-bottom: .9rem }
svg { display: block; width: 100% }
.rating { color: #b8791b; letter-spacing: .05em }
.product { display: grid; grid-template-columns: minmax(14rem, 26rem) 1fr; gap: 2.5rem; margin-top: 1rem }
.product svg { border-radius: .5rem }
.product .price { font-size: 1.75rem; margin: .75rem 0 .25rem }
.product .stock { color: #2e7d5b }
.product .stock[data-stock="0"] { color: #b0413e }
.product .blurb { margin-top: 1rem }
.crumbs, .maker { opacity: .75; font-size: .95rem }
.pager { margin-top: 1.5rem; display: flex; gap: 1.5rem }
@media (max-width: 40rem) { .product { grid-template-columns: 1fr } }
"""
