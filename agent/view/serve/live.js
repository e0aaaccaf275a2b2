"use strict";
// The live part of the page: what the night does now, and new attempts as they are decided. All texts of a night are
// foreign: they become text nodes and nothing else.
(() => {
  const { version, tag, style } = LIVE;
  const WIDE = 680, HIGH = 150, BELOW = 18, AFTER = 44;
  const STEEP = 0.1, WINDOW = 0.05;  // shares of the budget
  const AGAIN_MS = 3000, FOLLOWED = "nightshift-followed";
  const shown = { version, wanted: version, fetching: false };

  // ---- the panel ----

  const make = (name, of, words) => {
    const made = document.createElement(name);
    if (of) made.className = of;
    if (words !== undefined) made.textContent = words;
    return made;
  };
  const panel = make("section");
  panel.id = "live";
  panel.setAttribute("aria-label", "The night now");
  const state = make("p", "state"), words = make("span"), rest = make("span", "rest");
  words.setAttribute("role", "status");
  state.append(words, rest);
  const notice = make("p", "notice"), tried = make("p", "tried"), why = make("p", "why");
  notice.setAttribute("role", "alert");
  const bar = make("progress"), pace = make("dl", "pace");
  bar.max = 1;
  bar.setAttribute("aria-label", "Progress of the run");
  const figure = make("figure"), log = make("details"), lines = make("pre");
  const crew = make("ul", "crew");
  crew.setAttribute("aria-label", "The workers now");
  log.append(make("summary", "", "End of the log"), lines);
  lines.tabIndex = 0;
  panel.append(state, notice, tried, why, bar, pace, figure, log, crew);
  for (const part of [notice, tried, why, bar, pace, figure, log, crew]) part.hidden = true;
  document.querySelector("main").prepend(panel);
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(style);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];

  const say = (part, text) => {
    if (part.textContent !== (text ?? "")) part.textContent = text ?? "";
    part.hidden = !text;
  };

  const clock = (seconds) => {
    const whole = Math.max(0, Math.round(seconds));
    return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
  };

  const night = { running: false, notice: null, until: null, experiments_left: null };
  let now = null, workers = null;  // what one worker does, or several

  const DOING = {
    preparing: () => "is prepared",
    "dry run": () => "is tried for a moment",
    training: (run) => `trains with seed ${run.seed}${run.dawn ? ", to confirm it" : ""}`,
    scoring: () => "is scored",
    auditing: () => "is audited",
  };

  function headline() {
    if (!night.running) return `Night ${tag} is not running`;
    if (workers?.busy.length) return `${workers.busy.length} of ${workers.count} workers busy`;
    return now && DOING[now.work] ? `Attempt ${now.attempt} ${DOING[now.work](now)}` : "Asks for the next idea";
  }

  /** Say what is left of the night, as far as it has limits. */
  function left() {
    if (!night.running) return "";
    const count = night.experiments_left, minutes = night.until && Math.max(0, (Date.parse(night.until) - Date.now()) / 60000);
    const hours = minutes >= 60 ? `${Math.floor(minutes / 60)} h ` : "";
    return [
      count === null ? "" : `${count} experiment${count === 1 ? "" : "s"} left`,
      minutes === null ? "" : `${hours}${Math.floor(minutes % 60)} min left`,
    ].filter(Boolean).join(" · ");
  }

  function showNow() {
    panel.classList.toggle("running", night.running);
    if (words.textContent !== headline()) words.textContent = headline();
    say(rest, left());
    say(tried, now?.title && `#${now.attempt} ${now.title}`);
    say(why, now?.why && now.why !== now.title ? now.why : "");
    const fraction = now?.fraction ?? null;
    bar.hidden = !now || !DOING[now.work];
    if (fraction === null) bar.removeAttribute("value"); else bar.value = fraction;
    const facts = [];
    if (fraction !== null) {
      facts.push(["Done", `${Math.floor(100 * fraction)} %`], ["Left", clock((1 - fraction) * now.budget_s)]);
    } else if (now?.elapsed_s != null) facts.push(["Running", clock(now.elapsed_s)]);
    if (now?.loss != null) facts.push(["Loss", now.loss.toFixed(3)]);
    if (now?.tokens_s != null) facts.push(["Tokens/s", Math.round(now.tokens_s).toLocaleString("en")]);
    pace.hidden = !facts.length;
    pace.replaceChildren(...facts.map(([name, value]) => {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", value));
      return pair;
    }));
    showWorkers();
    keepHeight();
    const share = fraction === null ? "" : `${Math.floor(100 * fraction)} % `;
    const claim = document.querySelector("h1")?.textContent ?? "";
    const at = now ? `${share}#${now.attempt}` : workers ? `${workers.busy.length} of ${workers.count}` : "";
    document.title = night.running && at ? `${at} · ${tag}` : `${tag}: ${claim}`;
  }

  /** Let the panel grow only, so that the page below does not jump whenever a run ends and another begins. */
  function keepHeight() {
    if (!night.running) panel.style.minHeight = "";
    else if (!log.open) panel.style.minHeight = `${Math.max(parseFloat(panel.style.minHeight) || 0, panel.offsetHeight)}px`;
  }
  window.addEventListener("resize", () => { panel.style.minHeight = ""; });

  /** Show a line for each of several workers that is busy: its name, a bar, how far it is, its attempt. */
  function showWorkers() {
    crew.hidden = !night.running || !workers?.busy.length;
    crew.replaceChildren(...(crew.hidden ? [] : workers.busy).map((run) => {
      const line = make("li"), bar = make("progress"), fraction = run.fraction ?? null;
      bar.setAttribute("aria-label", `Progress of ${run.worker}`);
      if (fraction !== null) bar.value = fraction;
      const far = fraction !== null ? `${Math.floor(100 * fraction)} %` : run.elapsed_s != null ? clock(run.elapsed_s) : "";
      const what = make("span", "what"), link = make("a", "", `#${run.attempt} ${run.title}`);
      link.href = `#attempt-${run.attempt}`;
      what.append(link, ` ${DOING[run.work](run)}`, run.loss != null ? `, loss ${run.loss.toFixed(3)}` : "");
      line.append(make("span", "worker", run.worker), bar, make("span", "far", far), what);
      return line;
    }));
  }

  // ---- the curve ----

  const draw = (name, facts, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(facts)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  /** Say by how much the loss lies below or above the incumbent's at the same share of the budget. */
  function compared(mine, best, at) {
    const [own, other] = [mine, best].map((points) => points.filter((point) => point[0] <= at && point[0] > at - WINDOW));
    if (!own.length || !other.length) return "beside ";
    const mean = (points) => points.reduce((sum, point) => sum + point[1], 0) / points.length;
    const apart = mean(own) - mean(other);
    return `by now ${Math.abs(apart).toFixed(3)} ${apart < 0 ? "below" : "above"} `;
  }

  function showCurve(curve) {
    const mine = curve?.points ?? [], best = curve?.best?.points ?? [];
    figure.hidden = mine.length < 2;
    if (figure.hidden) return;
    const [at, last] = mine[mine.length - 1];
    const begin = at > 2 * STEEP ? STEEP : 0;  // the first steps would flatten the rest
    const losses = [...mine, ...best].filter((point) => point[0] >= begin).map((point) => point[1]);
    const low = Math.min(...losses), high = Math.max(...losses, low + 1e-6);
    const wide = Math.min(WIDE, figure.clientWidth || WIDE) - AFTER;
    const x = (share) => (share * wide).toFixed(1);
    const y = (loss) => ((high - loss) / (high - low) * HIGH).toFixed(1);
    const path = (points) => `M${points.filter((point) => point[1] <= high).map(([share, loss]) => `${x(share)} ${y(loss)}`).join("L")}`;
    const said = best.length ? `${compared(mine, best, at)}the incumbent, attempt ${curve.best.attempt}, in grey` : "";
    const label = `Training loss of attempt ${curve.attempt}, ${last.toFixed(3)} now${said && `; ${said}`}`;
    const svg = draw("svg", { viewBox: `0 -8 ${wide + AFTER} ${HIGH + BELOW + 8}`, role: "img", "aria-label": label });
    svg.append(draw("path", { class: "axis", d: `M0 ${HIGH}H${wide}` }));
    if (best.length) svg.append(draw("path", { d: path(best) }));
    svg.append(draw("path", { class: "mine", d: path(mine) }));
    svg.append(draw("text", { x: 0, y: HIGH + 14 }, "0"), draw("text", { x: wide, y: HIGH + 14, "text-anchor": "end" }, "budget"));
    svg.append(draw("text", { x: wide + 6, y: 4 }, high.toFixed(2)), draw("text", { x: wide + 6, y: HIGH + 4 }, low.toFixed(2)));
    const caption = make("figcaption", "", "Training loss of ");
    caption.append(make("span", "key-mine", `attempt ${curve.attempt}`), said && `: ${said}`);
    figure.replaceChildren(svg, caption);
    keepHeight();
  }

  function showLog(text) {
    log.hidden = !text;
    const atEnd = lines.scrollTop + lines.clientHeight >= lines.scrollHeight - 4;
    if (lines.textContent !== text) lines.textContent = text;
    if (atEnd) lines.scrollTop = lines.scrollHeight;
  }

  // ---- the rest of the page ----

  async function refresh() {
    if (shown.fetching || shown.version === shown.wanted) return;
    shown.fetching = true;
    const answer = await fetch("/state.json", { cache: "no-store" }).catch(() => null);
    const fresh = answer?.ok ? await answer.json().catch(() => null) : null;  // the server may be gone for a moment
    shown.fetching = false;
    if (fresh && fresh.tag === tag && fresh.version !== shown.version) {
      shown.version = fresh.version;
      update(fresh.state);
    }
    if (shown.version !== shown.wanted) setTimeout(refresh, AGAIN_MS);
  }

  // ---- what the page itself leaves out ----

  /** Add to an open row the end of the log, and the edit where the page has none; both are asked for when they are opened. */
  function addMore(row) {
    const grid = row.querySelector(".grid"), number = row.id.replace("detail-", "");
    if (grid.querySelector(".more")) return;
    const more = make("div", "whole more");
    if (!grid.querySelector(".diff") && number !== "0") more.append(asked(`/attempt/${number}/diff`, "Edit"));
    more.append(asked(`/attempt/${number}/log`, "End of the log"));
    grid.append(more);
  }

  function asked(path, title) {
    const part = make("details"), text = make("pre", "", "…");
    text.tabIndex = 0;
    part.append(make("summary", "", title), text);
    part.open = opened.has(path);  // a newer state draws the rows again
    part.addEventListener("toggle", () => (part.open ? opened.add(path) : opened.delete(path)));
    part.addEventListener("toggle", async () => {
      const answer = await fetch(`${path}?tag=${encodeURIComponent(tag)}`).catch(() => null);
      text.textContent = answer ? (await answer.text()) || "It is empty." : "The server does not answer.";
    }, { once: true });
    return part;
  }

  const rows = document.getElementById("rows"), opened = new Set();
  const addToAll = () => rows.querySelectorAll("tr.detail").forEach(addMore);
  new MutationObserver(addToAll).observe(rows, { childList: true });
  addToAll();

  // ---- events ----

  const source = new EventSource("/events");
  const hear = (topic, act) => source.addEventListener(topic, (event) => act(JSON.parse(event.data)));
  let followed = null;
  try {
    followed = sessionStorage.getItem(FOLLOWED);
    sessionStorage.removeItem(FOLLOWED);
  } catch { /* storage may be forbidden; then the page does not say that it changed nights */ }

  hear("night", (said) => {
    panel.classList.remove("lost");
    if (said.tag !== tag) {
      try { sessionStorage.setItem(FOLLOWED, said.tag); } catch { /* as above */ }
      location.reload();
      return;
    }
    const ended = night.running && !said.running;
    Object.assign(night, said);
    const began = followed === tag ? `Night ${tag} has begun; this page follows it.` : "";
    say(notice, said.notice || (ended ? `Night ${tag} has ended.` : "") || (said.running ? began : ""));
    showNow();
    shown.wanted = said.version;
    refresh();
  });
  hear("now", (said) => { now = said; showNow(); });
  hear("workers", (said) => { workers = said; showNow(); });
  hear("curve", showCurve);
  hear("log", showLog);
  source.onerror = () => {
    panel.classList.add("lost");
    say(notice, "The server does not answer; this page tries again.");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 10 * AGAIN_MS);
  };
})();
