// SPDX-License-Identifier: Apache-2.0
"use strict";

// Tables: a click on a heading sorts, a second one the other way round.

function sort(table, heading) {
  const place = heading.cellIndex;
  const rows = [...table.tBodies[0].rows];
  const key = (row) => row.cells[place].dataset.key;
  const isNumber = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
  const before = heading.getAttribute("aria-sort");
  const first = isNumber ? "descending" : "ascending";
  const second = isNumber ? "ascending" : "descending";
  const now = before === first ? second : first;
  const sign = now === "ascending" ? 1 : -1;
  rows.sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === "");
    return sign * (isNumber ? x - y : x.localeCompare(y, undefined, { numeric: true }));
  });
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", now);
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table.sortable"))
  for (const heading of table.tHead.rows[0].cells)
    heading.firstElementChild.addEventListener("click", () => sort(table, heading));

// Figures: what a mark is, where the pointer or the focus is. Each figure is one stop of the Tab
// key, and the arrows go from mark to mark.

const tips = JSON.parse(document.getElementById("tips").textContent);
const tip = document.getElementById("tip");

let shown = null;

function show(mark) {
  shown = mark;
  tip.textContent = tips[mark.id].join("\n");
  tip.hidden = false;
  const at = mark.getBoundingClientRect();
  const below = at.bottom + 8;
  const top = below + tip.offsetHeight <= innerHeight ? below : at.top - tip.offsetHeight - 8;
  tip.style.top = `${Math.max(0, top)}px`;
  tip.style.left = `${Math.max(4, Math.min(at.left, innerWidth - tip.offsetWidth - 4))}px`;
}

function hide() {
  shown = null;
  tip.hidden = true;
}

const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

function watch(figure) {
  const marks = [...figure.querySelectorAll("[id]")].filter((each) => each.id in tips);
  const place = new Map(marks.map((mark, number) => [mark, number]));
  const markOf = (event) => event.target.closest?.(".mark");
  for (const mark of marks) {
    mark.classList.add("mark");
    mark.setAttribute("role", "img");
    mark.setAttribute("aria-label", tips[mark.id].join(", "));
    mark.setAttribute("tabindex", "-1");
  }
  marks[0]?.setAttribute("tabindex", "0");
  figure.addEventListener("pointerover", (event) => markOf(event) && show(markOf(event)));
  figure.addEventListener("pointerout", hide);
  figure.addEventListener("focusin", (event) => {
    const now = markOf(event);
    if (!now) return;
    for (const mark of marks) mark.setAttribute("tabindex", mark === now ? "0" : "-1");
    now.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(now);
  });
  figure.addEventListener("focusout", hide);
  figure.addEventListener("keydown", (event) => {
    const now = place.get(markOf(event));
    if (now === undefined) return;
    const last = marks.length - 1;
    const ends = { Home: 0, End: last };
    const next = ends[event.key] ?? now + STEPS[event.key];
    if (event.key === "Escape") hide();
    if (!(next >= 0 && next <= last)) return;
    event.preventDefault();
    marks[next].focus();
  });
}

document.querySelectorAll("figure").forEach(watch);
addEventListener("scroll", () => shown && show(shown), { capture: true, passive: true });
