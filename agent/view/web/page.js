"use strict";
// Sorts, filters and opens the rows that the server has drawn, follows links into them, and names the marks of charts.
// Texts of a night are read from text nodes and set as such; none of it is ever parsed as HTML here.

const FEW = 25;  // rows that are shown before somebody asks for all
const FALLING = new Set([5, 6, 7]);  // columns that are sorted from the largest first: sure, speed, seeds
const PROPOSER = 8;  // the last column
const byId = (id) => document.getElementById(id);
const view = { column: 0, down: false, all: false };

const rows = () => [...byId("rows").children];
const cells = (row) => row.firstElementChild.children;
const text = (row, column) => cells(row)[column].textContent;
const number = (words) => Number(words.replace("−", "-").replace(/[>%+×]/g, "").replace("<1", "0").replace("–", "NaN") || "NaN");

// ---- sorting and filtering ----

function compare(a, b) {
  const sign = view.down ? -1 : 1, [left, right] = [text(a, view.column), text(b, view.column)];
  if ([1, 2, PROPOSER].includes(view.column)) return sign * left.localeCompare(right);
  const [x, y] = [number(left), number(right)];
  return Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : sign * (x - y);
}

/** Whether the filters choose a row; the baseline and the confirmation's questions are no ideas, and are shown among all alone. */
function isChosen(row) {
  const status = document.querySelector("[name=status]:checked").value, proposer = byId("proposer").value;
  const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const said = words.length ? `#${row.textContent}`.toLowerCase() : "";
  return (!status || (row.classList.contains(status) && row.classList.contains("idea")))
    && (!proposer || text(row, PROPOSER).split(":")[0] === proposer) && words.every((word) => said.includes(word));
}

function show() {
  const every = rows().sort((a, b) => compare(a, b) || number(text(a, 0)) - number(text(b, 0)));
  const chosen = every.filter(isChosen), focused = document.activeElement;
  every.forEach((row) => { row.hidden = true; });
  chosen.forEach((row, at) => { row.hidden = false; row.classList.toggle("later", at >= FEW && !view.all && !row.open); });
  byId("rows").append(...every);
  focused?.focus({ preventScroll: true });
  const few = Math.min(chosen.length, view.all ? chosen.length : FEW);
  byId("left-out").textContent = chosen.length < every.length ? `${chosen.length} of ${every.length} attempts, those that the filters chose.` : "";
  byId("all").hidden = few >= chosen.length;
  byId("all").textContent = `Show all ${chosen.length.toLocaleString("en")}`;
  for (const [at, head] of [...byId("heads").children].entries()) head.dataset.sorted = at !== view.column ? "" : view.down ? "down" : "up";
}

/** Count the attempts of each status, and list the proposers. */
function count() {
  const ideas = (status) => rows().filter((row) => !status || (row.classList.contains(status) && row.classList.contains("idea")));
  for (const input of document.querySelectorAll("[name=status]")) input.parentNode.querySelector("i").textContent = ideas(input.value).length.toLocaleString("en");
  const proposers = [...new Set(rows().map((row) => text(row, PROPOSER).split(":")[0]).filter(Boolean))].sort();
  const there = new Set([...byId("proposer").options].map((option) => option.value));
  byId("proposer").append(...proposers.filter((proposer) => !there.has(proposer)).map((proposer) => new Option(proposer, proposer)));
}

/** Open the row that an address such as #attempt-12 names, whatever the filters are, and go there. */
function follow(hash) {
  const row = /^#attempt-\d+$/.test(hash) && byId(hash.slice(1));
  if (!row) return false;
  row.open = true;
  row.hidden = false;
  row.classList.remove("later");
  row.scrollIntoView({ block: "start" });
  row.firstElementChild.focus({ preventScroll: true });
  return true;
}

// ---- charts ----

/** Make each drawing one stop of the Tab key, within which the arrow keys go from attempt to attempt. */
function prepareCharts() {
  for (const drawing of document.querySelectorAll(".chart svg")) {
    const of = (link) => Number(link.getAttribute("href").split("-")[1]);
    const links = [...drawing.querySelectorAll("a")].sort((a, b) => of(a) - of(b));
    links.forEach((link, at) => link.setAttribute("tabindex", at ? "-1" : "0"));
    drawing.addEventListener("keydown", (event) => {
      const at = links.indexOf(event.target.closest("a")), steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      const next = at < 0 ? undefined : links[at + (steps[event.key] ?? links.length)];
      if (next === undefined) return;
      event.preventDefault();
      links[at].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
}

function showTip(event) {
  const mark = event.target.closest?.(".chart svg a[aria-label], .chart svg [aria-label]:not(svg)"), tip = byId("tip");
  tip.hidden = !mark;
  if (!mark) return;
  const row = mark.getAttribute("href") && byId(mark.getAttribute("href").slice(1));
  const more = row ? [text(row, 1), `score ${text(row, 3)}, change ${text(row, 4)}, sure ${text(row, 5)}`] : [];
  tip.textContent = [mark.getAttribute("aria-label"), ...more].join("\n");
  const at = mark.getBoundingClientRect(), size = tip.getBoundingClientRect(), wide = document.documentElement.clientWidth;
  tip.style.left = `${Math.max(8, Math.min(at.left + at.width / 2 - size.width / 2, wide - size.width - 8))}px`;
  tip.style.top = `${at.top - size.height - 8 > 0 ? at.top - size.height - 8 : at.bottom + 8}px`;
}

// ---- a newer page ----

const { tag, againS } = document.body.dataset, PAUSE_MS = 2000;
let touchedMs = -PAUSE_MS;

/** Load the page again, unless its reader is at something; what the reader has opened, chosen and sorted stays. */
async function renew() {
  if (document.hidden || performance.now() - touchedMs < PAUSE_MS || !getSelection().isCollapsed) return;
  const answer = location.protocol === "file:" ? { ok: true } : await fetch(location.href).catch(() => null);
  byId("notice").textContent = answer?.ok ? "" : answer ? await answer.text() : "The server does not answer; this page tries again.";
  if (!answer?.ok) return;
  const open = [...document.querySelectorAll("details[id][open]")].map((each) => each.id), at = document.activeElement;
  const focus = at?.id ? `#${at.id}` : at?.closest("details[id]") ? `#${at.closest("details[id]").id} > summary` : null;
  const status = document.querySelector("[name=status]:checked").value;
  history.replaceState({ tag, view, open, focus, status, proposer: byId("proposer").value, search: byId("search").value }, "");
  location.reload();
}

/** Set what an older page of this night has kept; the browser itself keeps how far it was scrolled. */
function restore(kept) {
  Object.assign(view, kept.view);
  for (const id of kept.open) if (byId(id)) byId(id).open = true;
  document.querySelector(`[name=status][value="${kept.status}"]`).checked = true;
  for (const id of ["proposer", "search"]) byId(id).value = kept[id];
  if (kept.focus) document.querySelector(kept.focus)?.focus({ preventScroll: true });
}

// ---- the start ----

for (const [column, head] of [...byId("heads").children].entries()) head.firstElementChild.addEventListener("click", () => {
  Object.assign(view, { column, down: view.column === column ? !view.down : FALLING.has(column) });
  show();
});
byId("filters").hidden = false;
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", show);
byId("all").addEventListener("click", () => { view.all = true; show(); });
for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, showTip);
document.addEventListener("scroll", () => { byId("tip").hidden = true; }, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") byId("tip").hidden = true; });
document.addEventListener("click", (event) => {
  const anchor = event.target.closest?.("a")?.getAttribute("href");
  if (!anchor || event.ctrlKey || event.metaKey || !follow(anchor)) return;
  event.preventDefault();
  if (location.hash !== anchor) history.pushState(null, "", anchor);
});
window.addEventListener("popstate", () => follow(location.hash));
byId("log")?.addEventListener("toggle", () => { byId("log").lastElementChild.scrollTop = 1e9; });
for (const kind of ["pointermove", "pointerdown", "wheel", "keydown"]) document.addEventListener(kind, () => { touchedMs = performance.now(); }, { passive: true });
prepareCharts();
count();
if (history.state?.tag === tag) restore(history.state);
else follow(location.hash);
show();
if (againS) setInterval(renew, 1000 * againS);
