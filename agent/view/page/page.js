"use strict";
// Sorts, filters, pages and opens the table of attempts. Everything that a script, a model or another tool wrote becomes
// text by textContent or an attribute's value; none of it is ever parsed as HTML.

const PAGE = 25;
const STATUSES = [["", "all"], ["keep", "kept"], ["discard", "discarded"], ["crash", "crashed"]];
const FALLING = new Set(["gain_bpb", "sure", "seeds"]);  // sorted from the largest first
const MINUS = "\u2212", NONE = "\u2013";

const byId = (id) => document.getElementById(id);
const view = { night: null, sort: "number", down: false, status: "", source: "", search: "", page: 0, open: new Set(), whole: false };
let nights = [];

function make(name, attributes = {}, ...children) {
  const node = name.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", name.slice(4))
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.setAttribute("class", value);
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, "");
    else if (value !== null && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// ---- numbers as words -------------------------------------------------------------------------------------------------

const fixed = (value, digits) => (value === null ? NONE : value.toFixed(digits).replace("-", MINUS));
const signed = (value, digits) => {
  const text = fixed(value, digits);
  return Number(value?.toFixed(digits)) === 0 ? text.replace(MINUS, "") : value > 0 ? `+${text}` : text;
};
const percent = (value) => (value === null ? NONE : value > 0.99 ? ">99%" : value < 0.01 ? "<1%" : `${Math.round(100 * value)}%`);
/** As agent/text.py has it. */
const duration = (seconds) => {
  const minutes = Math.round(seconds / 60), rest = String(minutes % 60).padStart(2, "0");
  return seconds < 59.5 ? `${Math.round(seconds)} s` : minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${rest} min`;
};
/** As agent/view/terminal.py has it. */
const memory = (gb) => (!gb ? "" : gb < 0.1 ? `${Math.round(1024 * gb)} MB` : `${gb.toFixed(1)} GB`);
const moment = (at) => (at === null ? "" : at.replace("T", " ").replace(/(\.\d+)?(Z|\+00:00)$/, " UTC"));

// ---- the state --------------------------------------------------------------------------------------------------------

/** Show a state: at the start that of the page, later a newer one. Open rows, filters, order and focus stay. */
function update(state) {
  const again = focused();
  for (const [name, html] of Object.entries(state.parts ?? {})) {
    const place = document.querySelector(`[data-part="${CSS.escape(name)}"]`);
    if (place !== null) {
      place.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
      prepareCharts(place);
    }
  }
  nights = state.nights.map((night) => ({
    ...night,
    attempts: night.rows.map((row) => Object.fromEntries(night.columns.map((name, at) => [name, row[at]]))),
  }));
  if (night() === undefined) view.night = nights[0].tag;
  showFilters();
  showTable();
  focusOn(again);
}

/** Return a selector of the focused element, which may be made again; null where it stays as it is. */
function focused() {
  const at = document.activeElement, row = at?.closest("tr.row"), href = at?.getAttribute("href");
  if (row) return `#${CSS.escape(row.id)} button`;
  if (at?.name === "status") return `[name=status][value="${at.value}"]`;
  return href && at.closest("[data-part]") ? `[data-part] a[href="${CSS.escape(href)}"]` : null;
}

const focusOn = (selector) =>
  [...(selector ? document.querySelectorAll(selector) : [])].find((one) => one.getClientRects().length)?.focus({ preventScroll: true });

const night = () => nights.find((one) => one.tag === view.night);

function choose(tag) {
  if (tag === view.night || !nights.some((one) => one.tag === tag)) return;
  Object.assign(view, { night: tag, status: "", source: "", search: "", page: 0, open: new Set() });
  for (const part of document.querySelectorAll("[data-night]")) part.hidden = part.dataset.night !== tag;
  const chooser = byId("night");
  if (chooser !== null) chooser.value = tag;
  byId("search").value = "";
  showFilters();
  showTable();
}

// ---- filters ----------------------------------------------------------------------------------------------------------

/** Whether an idea has a status; the baseline and dawn's questions are no ideas, and are shown among all alone. */
const has = (one, status) => !status || (one.status === status && one.kind !== "baseline" && one.kind !== "question");
const sourceOf = (attempt) => attempt.source.split(":")[0];

function showFilters() {
  const attempts = night().attempts;
  const choices = STATUSES.map(([status, word]) => {
    const count = attempts.filter((one) => has(one, status)).length;
    const input = make("input", { type: "radio", name: "status", value: status, onchange: () => filter({ status }) });
    input.checked = view.status === status;
    return make("label", {}, input, make("span", { class: status && `${status} mark` }, `${word} ${count.toLocaleString("en")}`));
  });
  byId("statuses").replaceChildren(byId("statuses").firstElementChild, ...choices);
  const sources = [...new Set(attempts.map(sourceOf).filter(Boolean))].sort();
  const options = sources.map((source) => make("option", { value: source, selected: source === view.source }, source));
  const said = (list) => list.map((one) => one.value).join("\n");
  if (said(options) !== said([...byId("source").options].slice(1))) {  // else a list that is open would close
    byId("source").replaceChildren(make("option", { value: "" }, "every source"), ...options);
  }
  byId("source").value = view.source;
  byId("filters").hidden = false;
}

function filter(change) {
  Object.assign(view, change, { page: 0 });
  showTable();
}

function chosen() {
  const words = view.search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = night().attempts.filter((one) => {
    if (!has(one, view.status)) return false;
    if (view.source && sourceOf(one) !== view.source) return false;
    const text = words.length ? `#${one.number} ${one.title} ${one.kind ?? ""} ${one.words ?? ""} ${one.source}`.toLowerCase() : "";
    return words.every((word) => text.includes(word));
  });
  const key = view.sort, sign = view.down ? -1 : 1;
  return found.sort((a, b) => compare(a[key], b[key], sign) || a.number - b.number);
}

function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null);  // without a value: last, in either order
  return sign * (typeof a === "string" ? a.localeCompare(b) : a - b);
}

// ---- the table --------------------------------------------------------------------------------------------------------

function showTable() {
  const found = chosen();
  const pages = Math.max(1, Math.ceil(found.length / PAGE));
  view.page = Math.min(view.page, pages - 1);
  const first = view.whole ? 0 : view.page * PAGE, shown = found.slice(first, view.whole ? found.length : first + PAGE);
  const rows = shown.flatMap((one) => (view.open.has(one.number) ? [rowOf(one), detailOf(one)] : [rowOf(one)]));
  const none = make("tr", { class: "none" }, make("td", { colspan: 8 }, "No attempt matches."));
  byId("rows").replaceChildren(...(rows.length ? rows : [none]));
  byId("range").textContent = `${found.length ? first + 1 : 0}\u2013${first + shown.length} of ${found.length.toLocaleString("en")}`;
  byId("back").disabled = view.page === 0;
  byId("on").disabled = view.page === pages - 1;
  byId("pages").hidden = pages === 1;
  const all = night().attempts.length;
  byId("left-out").textContent = found.length < all ? `${found.length} of ${all} attempts, those that the filters chose.` : "";
  for (const head of document.querySelectorAll("th[data-sort]")) {
    if (head.dataset.sort === view.sort) head.setAttribute("aria-sort", view.down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  }
}

function rowOf(one) {
  const open = view.open.has(one.number);
  const button = make("button", {
    type: "button", "aria-expanded": String(open), "aria-controls": open ? `detail-${one.number}` : null,
    "aria-label": `Attempt ${one.number}: ${one.title}`,
  }, String(one.number));
  const status = one.status ?? "open-yet";
  const classes = `row ${status}${open ? " open" : ""}${one.number === night().incumbent ? " best" : ""}`;
  const cell = (text, name) => make("td", { class: name }, text);
  return make("tr", { class: classes, id: `attempt-${one.number}`, onclick: (event) => clicked(event, one) },
    make("td", { class: "number" }, button),
    make("td", {}, make("span", { class: "title", dir: "auto" }, one.title)),
    make("td", {}, make("span", { class: "verdict" }, make("span", {}, one.kind ?? "not decided"))),
    cell(fixed(one.val_bpb, 4), "number"), cell(signed(one.gain_bpb, 4), "number"), cell(percent(one.sure), "number sure"),
    cell(String(one.seeds), "number wide"), cell(one.source, "wide"));
}

function clicked(event, one) {
  const marks = window.getSelection();
  if (marks !== null && !marks.isCollapsed && marks.containsNode(event.currentTarget, true)) return;  // text is selected
  toggle(one.number);
}

function toggle(number) {
  const open = !view.open.has(number), row = byId(`attempt-${number}`), one = attempt(number);
  if (open) view.open.add(number);
  else view.open.delete(number);
  const again = rowOf(one);
  if (row.nextElementSibling?.classList.contains("detail")) row.nextElementSibling.remove();
  row.replaceWith(again);
  if (open) again.after(detailOf(one));
  again.querySelector("button").focus({ preventScroll: true });
}

const attempt = (number) => night().attempts.find((one) => one.number === number);

/** Open the row of an attempt, whatever the filters are, and go there. */
function goTo(number) {
  if (attempt(number) === undefined) return;
  if (!chosen().some((one) => one.number === number)) {
    Object.assign(view, { status: "", source: "", search: "" });
    byId("search").value = "";
    showFilters();
  }
  view.open.add(number);
  view.page = Math.floor(chosen().findIndex((one) => one.number === number) / PAGE);
  showTable();
  const row = byId(`attempt-${number}`);
  row.scrollIntoView({ block: "start" });
  row.querySelector("button").focus({ preventScroll: true });
}

// ---- an open row ------------------------------------------------------------------------------------------------------

function detailOf(one) {
  const more = night().details[one.number];
  const block = (title, content, name = "") => (content || null) && make("div", { class: name }, make("h3", {}, title), content);
  const grid = make("div", { class: "grid" },
    make("div", { class: "half" },
      block("Verdict", make("p", {}, verdictOf(one))),
      block("Loss in training", more && curveOf(one)),
      block("Decisions over time", more && eventsOf(more)),
      block("Runs", more && runsOf(more))),
    make("div", { class: "half" },
      block("Hypothesis", more?.hypothesis && make("p", { dir: "auto" }, more.hypothesis)),
      block("Facts", factsOf(one, more))),
    block("Edit", diffOf(night().diffs[one.number]), "whole"));
  return make("tr", { class: "detail", id: `detail-${one.number}` }, make("td", { colspan: 8 }, grid));
}

function verdictOf(one) {
  const kind = one.kind ?? "not decided";
  const words = one.words ?? kind, whole = words.startsWith(kind) ? words : `${kind}: ${words}`;
  return (whole[0].toUpperCase() + whole.slice(1)).replace(/[^.!?…]$/, "$&.");
}

function eventsOf(more) {
  if (more.decisions.length < 2) return null;
  const items = more.decisions.map(([at, kind, words]) => make("li", {},
    make("time", {}, moment(at)), make("strong", {}, kind), words && words !== kind ? ` \u2013 ${words.replace(`${kind}: `, "")}` : ""));
  return make("ol", { class: "events" }, ...items);
}

function runsOf(more) {
  if (!more.runs.length) return null;
  const head = ["seed", "val_bpb", "time", "note"].map((name, at) => make("th", { scope: "col", class: at < 3 ? "number" : "" }, name));
  const rows = more.runs.map(([seed, dawn, ending, bpb, holdout, failure, spent, worker]) => {
    const notes = [worker ?? "", dawn ? `of dawn ${dawn}` : "", holdout === null ? "" : `holdout ${fixed(holdout, 6)}`,
      bpb === null ? failure ?? ending : failure ?? ""];
    return make("tr", {}, ...[seed, fixed(bpb, 6), duration(spent)].map((text) => make("td", { class: "number" }, String(text))),
      make("td", {}, notes.filter(Boolean).join(", ")));
  });
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
  return make("div", { class: "runs" }, table);
}

function factsOf(one, more) {
  const list = make("dl", { class: "pairs" });
  const add = (name, value) => value !== null && value !== "" && list.append(make("dt", {}, name), make("dd", {}, value));
  add("val_bpb", one.val_bpb === null ? "" : fixed(one.val_bpb, 6));
  const link = (number) => (number === null || number === undefined ? "" : make("a", { href: `#attempt-${number}` }, `#${number}`));
  add("edits", link(one.parent));
  add("merges", link(more?.merges));
  add("merged as", link(more?.merged_as));
  add("source", one.source);
  add("spent", duration(one.spent_s));
  if (more) {
    for (const [name, before, after] of more.dials) add(name, `${before} \u2192 ${after}`);
    add("parameters", more.params === null ? "" : more.params < 1e5 ? more.params.toLocaleString("en") : `${(more.params / 1e6).toFixed(2)} M`);
    add("memory", memory(more.memory_gb));
    add("speed", more.tokens_s === null ? "" : `${Math.round(more.tokens_s).toLocaleString("en")} tokens/s`);
    add("paid", more.usd === null ? "" : `$${more.usd.toFixed(2)}`);
    add("begun", moment(more.started));
    add("commit", more.commit === null ? "" : more.commit.slice(0, 7));
  } else add("more", `${night().program} show ${one.number} --tag ${night().tag}`);
  return list;
}

function diffOf(text) {
  if (!text) return null;
  const code = make("code");
  for (const line of text.split("\n")) {
    const name = { "+": "added", "-": "removed", "@": "place" }[line[0]] ?? "";
    code.append(make("span", { class: name }, line));
  }
  return make("pre", { class: "diff", tabindex: "0", "aria-label": "The edit as a diff" }, code);
}

/** Draw the loss of the attempt over that of its parent, which was the incumbent when it was tried. */
function curveOf(one) {
  const mine = night().curves[one.number], before = night().curves[one.parent];
  if (!mine) return null;
  const [width, height, left, bottom] = [480, 200, 40, 22];
  const ys = [mine, before].filter(Boolean).flatMap((points) => points.filter(([x]) => x >= 0.08).map(([, y]) => y));
  const low = Math.min(...ys), high = Math.max(...ys, low + 1e-6), room = 0.06 * (high - low);
  const x = (at) => left + at * (width - left - 60);
  const y = (loss) => 8 + ((high + room - loss) / (high - low + 2 * room)) * (height - bottom - 8);
  const line = (points, name) => make("svg:path", {
    class: name, d: points.filter(([, loss]) => loss <= high + room).map(([at, loss], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(loss).toFixed(1)}`).join(""),
  });
  const word = (at, points, name, text) => make("svg:text", { x: width - 55, y: y(points[points.length - 1][1]) + at, class: name }, text);
  const own = mine[mine.length - 1][1], other = before ? before[before.length - 1][1] : null;
  const apart = other !== null && Math.abs(y(own) - y(other)) < 13 ? (own <= other ? 8 : -8) : 0;
  const label = (loss) => make("svg:text", { x: left - 6, y: y(loss) + 4, "text-anchor": "end" }, loss.toFixed(2));
  const axis = make("svg:path", { class: "axis", d: `M${left} 8V${height - bottom}H${x(1)}` });
  const said = `Training loss of attempt ${one.number}, at last ${own.toFixed(3)}${other === null ? "" : `; of its parent, ${other.toFixed(3)}`}`;
  return make("svg:svg", { class: "curve", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said }, axis,
    label(low), label(high), before ? line(before, "") : null, line(mine, "mine"),
    word(4 + apart, mine, "mine-word", `#${one.number}`), before ? word(4 - apart, before, "", `#${one.parent}`) : null,
    make("svg:text", { x: left, y: height - 6 }, "start"), make("svg:text", { x: x(1), y: height - 6, "text-anchor": "end" }, "budget"));
}

// ---- charts -----------------------------------------------------------------------------------------------------------

/** Make each drawing one stop of the Tab key, within which the arrow keys go from attempt to attempt. */
function prepareCharts(root) {
  for (const drawing of root.querySelectorAll(".chart svg")) {
    const number = (link) => named(link.getAttribute("href"))?.number ?? 0;
    const links = [...drawing.querySelectorAll("a")].sort((a, b) => number(a) - number(b));
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
  const mark = event.target.closest?.(".chart svg a[aria-label], .chart svg [aria-label]:not(svg)");
  const tip = byId("tip");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.getAttribute("aria-label");
  const at = mark.getBoundingClientRect(), size = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(at.left + at.width / 2 - size.width / 2, document.documentElement.clientWidth - size.width - 8))}px`;
  tip.style.top = `${at.top - size.height - 8 > 0 ? at.top - size.height - 8 : at.bottom + 8}px`;
}

/** Return the attempt that an anchor names, and its night: #attempt-12, or #attempt-nov22-12 where nights compare. */
function named(anchor) {
  const found = anchor.match(/^#attempt-(?:(.+)-)?(\d+)$/);
  return found && { tag: found[1] ?? view.night, number: Number(found[2]) };
}

function follow(anchor) {
  const found = named(anchor);
  if (found === null) return false;
  choose(found.tag);
  goTo(found.number);
  return true;
}

function linkClicked(event) {
  const anchor = event.target.closest?.("a")?.getAttribute("href");
  if (!anchor || event.ctrlKey || event.metaKey || !follow(anchor)) return;
  event.preventDefault();
  if (location.hash !== anchor) history.pushState(null, "", anchor);
}

// ---- on paper ---------------------------------------------------------------------------------------------------------

/** Draw every row that the filters choose, since paper has no button for the next ones; afterwards the page as it was. */
function printWhole() {
  const again = focused(), at = window.scrollY;
  view.whole = true;
  showTable();
  window.addEventListener("afterprint", () => {
    view.whole = false;
    showTable();
    window.scrollTo(0, at);
    focusOn(again);
  }, { once: true });
}

// ---- the start --------------------------------------------------------------------------------------------------------

for (const head of document.querySelectorAll("th[data-sort]")) {
  const key = head.dataset.sort, button = make("button", { type: "button" }, ...head.childNodes);
  button.addEventListener("click", () => {
    const down = view.sort === key ? !view.down : FALLING.has(key);
    Object.assign(view, { sort: key, down, page: 0 });
    showTable();
  });
  head.replaceChildren(button);
}
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("source").addEventListener("change", (event) => filter({ source: event.target.value }));
byId("search").addEventListener("input", (event) => filter({ search: event.target.value }));
for (const [id, step] of [["back", -1], ["on", 1]]) {
  byId(id).addEventListener("click", () => {
    view.page += step;
    showTable();
    byId("attempts").scrollIntoView();
  });
}
byId("night")?.addEventListener("change", (event) => choose(event.target.value));
for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, showTip);
document.addEventListener("scroll", () => { byId("tip").hidden = true; }, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") byId("tip").hidden = true; });
document.addEventListener("click", linkClicked);
window.addEventListener("beforeprint", printWhole);
window.addEventListener("popstate", () => follow(location.hash));
update(JSON.parse(byId("state").textContent));
prepareCharts(document);
follow(location.hash);
