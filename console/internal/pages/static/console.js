// Scripts of all pages. Without them, only copying, the refresh of the overview and
// the arrow keys of charts are missing.
"use strict";

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const label = button.textContent;
  button.hidden = !navigator.clipboard;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.value ?? source.textContent);
      button.textContent = "Copied";
    } catch {
      source.select?.();
      button.textContent = "Press Ctrl+C";
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

const secret = document.getElementById("secret");
if (secret) {
  secret.addEventListener("focus", () => secret.select());
  // The address of the form is replaced, so that reloading shows the key and does
  // not send the form again.
  history.replaceState(null, "", document.querySelector(".secret a").href);
}

// In a chart, Tab stops at one bar, and the arrow keys lead to the others. Without
// scripts, Tab stops at each of them.
function oneTabStop() {
  for (const bar of document.querySelectorAll(".bar-column:not(:last-child)")) bar.tabIndex = -1;
}
document.addEventListener("keydown", (event) => {
  const bar = event.target.closest(".bar-column");
  if (!bar) return;
  if (event.key === "Escape") return bar.blur();
  const bars = [...bar.parentElement.querySelectorAll(".bar-column")];
  const moves = { ArrowLeft: bars.indexOf(bar) - 1, ArrowRight: bars.indexOf(bar) + 1, Home: 0, End: bars.length - 1 };
  const next = bars[moves[event.key]];
  if (!next) return;
  event.preventDefault();
  bar.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});
oneTabStop();

// refresh replaces the content of the overview, which has no controls, by that of
// a new copy of the page.
const live = document.getElementById("live");
async function refresh() {
  if (document.visibilityState !== "visible") return;
  const reply = await fetch(location.href);
  if (!reply.ok || reply.redirected) return;
  const page = new DOMParser().parseFromString(await reply.text(), "text/html");
  const next = page.getElementById("live");
  if (next && !live.contains(document.activeElement)) {
    live.replaceChildren(...next.childNodes);
    oneTabStop();
  }
}
if (live) setInterval(() => refresh().catch(() => {}), Number(live.dataset.refresh));
