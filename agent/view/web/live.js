"use strict";
// The live part of the page: what the night does now, and newer rows and charts when its facts have changed. The server
// has drawn both, and has made every text of the night harmless.
(() => {
  const AGAIN_MS = 3000;
  const main = document.querySelector("main"), panel = document.getElementById("live");
  const shown = { version: Number(main.dataset.version), wanted: 0, fetching: false };

  function showPanel(html) {
    const log = panel.querySelector("pre"), isOpen = panel.querySelector("details")?.open;
    const atEnd = !log || log.scrollTop + log.clientHeight >= log.scrollHeight - 4, at = log?.scrollTop;
    panel.hidden = false;
    panel.innerHTML = html;
    const newer = panel.querySelector("pre");
    if (newer && isOpen) {
      panel.querySelector("details").open = true;
      newer.scrollTop = atEnd ? newer.scrollHeight : at;
    }
    // it grows only, so that the page below does not jump whenever a run ends and another begins
    if (!isOpen) panel.style.minHeight = `${Math.max(parseFloat(panel.style.minHeight) || 0, panel.offsetHeight)}px`;
  }

  async function refresh() {
    if (shown.fetching || shown.version === shown.wanted) return;
    shown.fetching = true;
    const answer = await fetch("/", { cache: "no-store" }).catch(() => null);
    const html = answer?.ok ? await answer.text().catch(() => null) : null;  // the server may be gone for a moment
    shown.fetching = false;
    const version = Number(html?.match(/<main [^>]*data-version="(\d+)"/)?.[1] ?? shown.version);
    if (version !== shown.version) renew(html);
    shown.version = version;
    if (shown.version !== shown.wanted) setTimeout(refresh, AGAIN_MS);
  }

  const source = new EventSource("/events");
  source.onmessage = (event) => {
    const said = JSON.parse(event.data);
    if (said.tag !== main.dataset.tag) return location.reload();
    if (said.panel !== shown.panel) showPanel(shown.panel = said.panel);
    document.title = panel.querySelector(".state").dataset.title;
    shown.wanted = said.version;
    refresh();
  };
  source.onerror = () => {
    showPanel(shown.panel = '<p class="notice" role="alert">The server does not answer; this page tries again.</p>');
    if (source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 10 * AGAIN_MS);
  };

  // a row's log is asked for when it is opened
  document.addEventListener("toggle", async (event) => {
    const more = event.target, number = more.closest?.(".row")?.id.replace("attempt-", "");
    if (!more.classList?.contains("more") || !more.open) return;
    const answer = await fetch(`/attempt/${number}/log`).catch(() => null);
    more.querySelector("pre").textContent = answer ? (await answer.text()) || "It is empty." : "The server does not answer.";
  }, true);
})();
