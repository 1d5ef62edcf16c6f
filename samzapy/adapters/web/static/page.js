// Keeps the page live: an event says that there is something new, and the parts marked data-live are replaced.
// Without this script the page shows the moment at which it was loaded.
"use strict";
(() => {
  const AGAIN_MS = 5000;
  const status = document.getElementById("connection");
  const button = document.getElementById("pause");
  let shown = document.body.dataset.look;
  let leads = status !== null;
  let connected = false, paused = false, busy = false, due = false;

  const tell = () => {
    const text = paused ? "Paused" : connected ? "Live" : "Not connected";
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

  const show = async () => {
    due = true;
    if (busy || paused || document.hidden) return;
    busy = true;
    due = false;
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
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
      // The next event, or the next connection, shows it.
    } finally {
      busy = false;
      if (due) setTimeout(show, 0);
    }
  };

  const follow = () => {
    const events = new EventSource(document.body.dataset.events);
    const change = (isConnected) => {
      connected = isConnected;
      tell();
    };
    events.addEventListener("open", () => change(true));
    events.addEventListener("changed", (event) => { if (event.data !== shown) show(); });
    events.addEventListener("error", () => {
      change(false);
      if (events.readyState !== EventSource.CLOSED) return;
      // There was another answer than a stream: too many viewers, or no leader. The page asks by itself.
      setTimeout(() => { show(); follow(); }, AGAIN_MS);
    });
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
  document.addEventListener("visibilitychange", () => { if (due) show(); });
  follow();
})();
