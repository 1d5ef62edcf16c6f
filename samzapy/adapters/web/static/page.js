// Keeps the page live: an event says that there is something new, and the parts marked data-live are replaced.
// Without this script the page shows the moment at which it was loaded.
"use strict";
(() => {
  const AGAIN_MS = 5000;
  const ANSWER_MS = 30000;
  const status = document.getElementById("connection");
  const button = document.getElementById("pause");
  let shown = document.body.dataset.look;
  let leads = status !== null;
  let events = null, timer = 0;
  let connected = false, answered = true, paused = false, busy = false, due = false;

  const tell = () => {
    const text = paused ? "Paused" : connected && answered ? "Live" : "Not connected";
    if (status !== null && status.textContent !== text) status.textContent = text;
  };

  const isSelected = (part) => {
    const selection = document.getSelection();
    return selection !== null && !selection.isCollapsed && part.contains(selection.anchorNode);
  };

  const focusable = (part) => [...part.querySelectorAll("a[href], [tabindex]")];

  // The link that has the focus keeps it: the same link of the new content gets it, or else the one at its place.
  const replace = (part, fresh) => {
    if (part.innerHTML === fresh.innerHTML || isSelected(part)) return;
    const focused = part.contains(document.activeElement) ? document.activeElement : null;
    const place = focusable(part).indexOf(focused);
    part.replaceChildren(...fresh.childNodes);
    if (focused === null) return;
    const href = focused.getAttribute("href");
    const links = focusable(part);
    const again = links.find((link) => href !== null && link.getAttribute("href") === href) || links[place];
    if (again) again.focus({ preventScroll: true });
  };

  const askAgain = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { follow(); show(); }, AGAIN_MS);
  };

  const show = async () => {
    due = true;
    if (busy || paused || document.hidden) return;
    busy = true;
    due = false;
    try {
      const signal = AbortSignal.timeout(ANSWER_MS);
      const response = await fetch(location.href, { headers: { Accept: "text/html" }, signal });
      // The browser asks for another credential, or shows why this one does not count.
      if (response.status === 401 || response.status === 403) return location.reload();
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      // Each page of samzapy has this. Others come from a proxy whose coordinator is away, and have no script.
      if (fresh.body.dataset.events === undefined) throw new Error("no page of samzapy");
      answered = true;
      if ((fresh.getElementById("connection") !== null) !== leads) {
        // Another page: that of a process which does not lead any more, or leads again.
        location.reload();
        return;
      }
      shown = fresh.body.dataset.look;
      for (const part of document.querySelectorAll("[data-live]")) {
        const other = fresh.getElementById(part.id);
        if (other !== null) replace(part, other);
      }
    } catch {
      answered = false;
      askAgain();
    } finally {
      busy = false;
      tell();
      if (due) setTimeout(show, 0);
    }
  };

  const change = (isConnected) => {
    connected = isConnected;
    tell();
  };

  const follow = () => {
    if (events !== null || document.hidden) return;
    const source = new EventSource(document.body.dataset.events);
    events = source;
    source.addEventListener("open", () => change(true));
    source.addEventListener("changed", (event) => { if (event.data !== shown) show(); });
    source.addEventListener("error", () => {
      change(false);
      if (source.readyState !== EventSource.CLOSED) return;
      // There was another answer than a stream: too many viewers, or no leader. The page asks by itself.
      events = null;
      askAgain();
    });
  };

  // A browser has six connections to a host for all of its tabs, so a tab in the background keeps none.
  const leave = () => {
    if (events !== null) events.close();
    events = null;
    change(false);
  };

  if (button !== null) {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.textContent = paused ? "Resume" : "Pause";
      tell();
      if (!paused) show();
    });
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return leave();
    follow();
    show();
  });
  follow();
})();
