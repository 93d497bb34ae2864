"""The boundary as one control: six kinds of entry in a row, and a handle between what is left out and what may be asked.

It is a native range input, so arrow keys, Home and End move it and a screen reader says what is left out. `level` is the
number of the boundary in `BOUNDARIES`, `counts` how many entries each of the six kinds has for the step that is looked at.

Not covered: what a boundary leaves out; that is `retrieval.views.boundary`. This file needs anywidget, an extra.
"""

import json

import anywidget
import traitlets

from experiential_lab.show.theme import BOUNDARIES

KINDS = (*((stop.name, stop.means) for stop in BOUNDARIES.values()), ("other tasks", "always eligible"))
"""(name, what it is) of each segment; the last one has no boundary after it."""


class Boundary(anywidget.AnyWidget):
    """All that is left of the handle is left out before scoring."""

    level = traitlets.Int(0).tag(sync=True)
    counts = traitlets.List(trait=traitlets.Int(), default_value=[1, 0, 0, 0, 0, 0]).tag(sync=True)
    _esm = (
        f"""
    const KINDS = {json.dumps(KINDS)}, LEFT = {json.dumps([stop.left_out for stop in BOUNDARIES.values()])};
    """
        + """
    function render({ model, el }) {
      const box = document.createElement("div"), row = document.createElement("div"), input = document.createElement("input");
      box.className = "bd"; row.className = "row";
      Object.assign(input, { type: "range", min: 0, max: LEFT.length - 1, step: 1 });
      input.setAttribute("aria-label", "Boundary: what is left of the handle is left out before scoring");
      const push = () => { model.set("level", +input.value); model.save_changes(); paint(); };
      KINDS.forEach(([name, means], i) => {
        const part = document.createElement("div");
        part.className = "seg";
        for (const [tag, text] of [["b", name], ["span", means], ["em", ""]]) {
          const piece = document.createElement(tag);
          piece.textContent = text;
          part.appendChild(piece);
        }
        part.onclick = () => { input.value = Math.min(i, LEFT.length - 1); push(); };
        row.appendChild(part);
      });
      const paint = () => {
        const level = model.get("level"), counts = model.get("counts");
        input.value = level;
        input.setAttribute("aria-valuetext", "left out: " + LEFT[level]);
        [...row.children].forEach((part, i) => {
          part.classList.toggle("out", i <= level);
          part.children[2].textContent = (counts[i] ?? 0).toLocaleString("en") + (i <= level ? " left out" : " eligible");
        });
      };
      input.addEventListener("input", push);
      model.on("change:level", paint);
      model.on("change:counts", paint);
      box.append(row, input);
      el.appendChild(box);
      paint();
    }
    export default { render };
    """
    )
    _css = """
    .bd{position:relative;font-family:var(--xl-font,sans-serif);color:var(--xl-ink);max-width:1320px;margin:0 auto;padding:5px 0}
    .bd .row{display:grid;grid-template-columns:repeat(6,minmax(0,1fr));border-radius:8px;overflow:hidden;border:1px solid var(--xl-line)}
    .bd .seg{padding:9px 10px 9px 18px;min-height:70px;cursor:pointer;background:color-mix(in srgb,var(--xl-observed) 9%,var(--xl-surface));transition:background-color .2s}
    .bd .seg b{display:block;font-size:14.5px;line-height:1.3}
    .bd .seg span{display:block;font-size:12px;color:var(--xl-muted);white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
    .bd .seg em{font-style:normal;font-size:12.5px;font-variant-numeric:tabular-nums;color:var(--xl-observed);font-weight:700}
    .bd .seg.out{background:repeating-linear-gradient(135deg,transparent 0 5px,color-mix(in srgb,var(--xl-leak) 20%,transparent) 5px 6px),var(--xl-card)}
    .bd .seg.out b{font-weight:400;color:var(--xl-muted);text-decoration:line-through}.bd .seg.out em{color:var(--xl-leak)}
    .bd input{-webkit-appearance:none;appearance:none;position:absolute;top:0;height:100%;left:calc(100%/6 - 9px);width:calc(100%*4/6 + 18px);margin:0;background:transparent;pointer-events:none}
    .bd input::-webkit-slider-runnable-track{background:transparent;height:100%;display:flex;align-items:center}
    .bd input::-webkit-slider-thumb{-webkit-appearance:none;pointer-events:auto;width:18px;height:82px;border-radius:9px;cursor:ew-resize;border:2px solid var(--xl-surface);background:linear-gradient(90deg,transparent 5px,var(--xl-surface) 5px 6px,transparent 6px 8px,var(--xl-surface) 8px 9px,transparent 9px) center/14px 18px no-repeat,var(--xl-leak);box-shadow:0 1px 4px rgba(0,0,0,.35)}
    .bd input::-moz-range-track{background:transparent}
    .bd input::-moz-range-thumb{pointer-events:auto;width:14px;height:78px;border-radius:9px;border:2px solid var(--xl-surface);background:var(--xl-leak);cursor:ew-resize}
    .bd input:focus-visible{outline:none}.bd input:focus-visible::-webkit-slider-thumb{outline:3px solid var(--xl-observed);outline-offset:1px}
    .bd input:focus-visible::-moz-range-thumb{outline:3px solid var(--xl-observed);outline-offset:1px}
    @media (max-width:900px){.bd .seg span{display:none}.bd .seg{padding:8px 3px 8px 12px;min-height:60px}.bd .seg b{font-size:12px}.bd .seg em{font-size:11px}.bd input::-webkit-slider-thumb{height:74px}}
    """
