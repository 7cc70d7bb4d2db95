// Keeps the parts of a page that are marked with data-live as they are on the server now, and adds
// what only a script can: copying, and a key for the search. Pages work without it.
"use strict";

const main = document.getElementById("content");

// -- live parts ---------------------------------------------------------------------------------

// Changes a part to be like another, node by node, so that focus and selection stay.
function take(old, fresh) {
  if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) {
    old.replaceWith(fresh.cloneNode(true));
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const olds = [...old.childNodes];
  const freshes = [...fresh.childNodes];
  freshes.forEach((each, index) => {
    if (index < olds.length) take(olds[index], each);
    else old.append(each.cloneNode(true));
  });
  olds.slice(freshes.length).forEach((each) => each.remove());
}

async function refresh() {
  const asked = location.href;
  const response = await fetch(asked, { headers: { Accept: "text/html" } });
  if (!response.ok) throw new Error(`the page was answered with ${response.status}`);
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (location.href !== asked) return; // something else is searched for by now
  for (const old of document.querySelectorAll("[data-live]")) {
    const part = fresh.querySelector(`[data-live="${CSS.escape(old.dataset.live)}"]`);
    if (part) take(old, part);
  }
  const pause = fresh.getElementById("content").dataset.refresh;
  if (pause) main.dataset.refresh = pause;
}

// Calls `turn` once and once more, as long after it has ended as it says in ms; the first time after
// `wait`. In a hidden tab, which nobody sees, and else while `rests` says so, it isn't called until
// what this returns is.
function repeat(turn, wait, rests = () => false) {
  let isResting = false;
  async function run() {
    isResting = document.hidden || rests();
    if (!isResting) setTimeout(run, await turn());
  }
  const wake = () => { if (isResting) run(); };
  document.addEventListener("visibilitychange", wake);
  setTimeout(run, wait);
  return wake;
}

function keepFresh() {
  let failures = 0;
  repeat(async () => {
    try {
      await refresh();
      failures = 0;
    } catch {
      failures = Math.min(failures + 1, 4);
    }
    document.documentElement.toggleAttribute("data-stale", failures > 0);
    return Number(main.dataset.refresh) * 2 ** failures;
  }, Number(main.dataset.refresh));
}

if (main.dataset.refresh) keepFresh();

// -- narrow menu --------------------------------------------------------------------------------

// A narrow menu scrolls: the page that is open is to be seen in it.
const here = document.querySelector(".side nav [aria-current]");
if (here) {
  const menu = here.closest("nav");
  menu.scrollLeft = here.offsetLeft - (menu.clientWidth - here.offsetWidth) / 2;
}

// -- searching ----------------------------------------------------------------------------------

// Searches while somebody types: the page's address becomes that of the search, and what it shows
// of it is taken over. Without script there is the button.
function searchWhileTyping(form) {
  let timer = 0;
  async function search() {
    const fields = [...new FormData(form)].filter(([, value]) => value);
    const query = new URLSearchParams(fields).toString();
    history.replaceState(null, "", location.pathname + (query && `?${query}`));
    try {
      await refresh();
    } catch {
      form.requestSubmit(); // the browser says what is wrong
    }
  }
  form.querySelector("button").hidden = true;
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, 200);
  });
}

document.querySelectorAll("[data-search]").forEach(searchWhileTyping);

// -- forms --------------------------------------------------------------------------------------

// Shows a field only while a choice elsewhere in the form makes use of it. What stands in a hidden
// one is not sent: "the last ones" would otherwise be those before the offset typed earlier.
for (const field of document.querySelectorAll("[data-when]")) {
  const choice = document.getElementById(field.dataset.when);
  const show = () => {
    field.hidden = !field.dataset.is.split(" ").includes(choice.value);
    for (const input of field.querySelectorAll("input")) input.disabled = field.hidden;
  };
  choice.addEventListener("change", show);
  show();
}

// A picker is in UTC: its label says what that is on the visitor's own clock.
for (const picker of document.querySelectorAll("input[type=datetime-local]")) {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone === "UTC") continue;
  const note = document.createElement("span");
  const say = () => {
    const moment = new Date(`${picker.value}Z`);
    note.textContent = isNaN(moment) ? "" : ` (${moment.toLocaleString()} in ${zone})`;
  };
  picker.labels[0].append(note);
  picker.addEventListener("input", say);
  say();
}

// -- live tail ----------------------------------------------------------------------------------

// Puts what is new above the rest, keeps at most so many, and rests while paused or hidden.
function follow(tail) {
  const state = document.getElementById("live-state");
  const pause = document.getElementById("pause");
  const most = Number(tail.dataset.most);
  let at = tail.dataset.at;
  let paused = false;
  const say = (text) => { if (state.textContent !== text) state.textContent = text; };

  const resume = repeat(async () => {
    try {
      const address = new URL(tail.dataset.tail, location.origin);
      address.searchParams.set("at", at);
      const response = await fetch(address);
      if (!response.ok) throw new Error();
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
      const part = fresh.querySelector("[data-at]");
      if (!paused) {
        at = part.dataset.at;
        tail.prepend(...part.children);
        while (tail.children.length > most) tail.lastElementChild.remove();
        say(`Live. Up to ${most} messages are kept here.`);
      }
    } catch {
      say("The console does not answer; trying again.");
      return 5000;
    }
    return 1000;
  }, 0, () => paused);

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) say("Paused. What is written meanwhile comes when it goes on.");
    resume();
  });
}

const tail = document.getElementById("tail");
if (tail) follow(tail);

// -- copying ------------------------------------------------------------------------------------

for (const block of document.querySelectorAll(".command")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "quiet copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const text = block.querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers allow it only on secure origins: a selection can be copied by hand.
      getSelection().selectAllChildren(block.querySelector("code"));
      return;
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.querySelector("p").append(" ", button);
}

// -- keys ---------------------------------------------------------------------------------------

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea")) return;
  const field = document.querySelector(`[data-shortcut="${CSS.escape(event.key)}"]`);
  if (field) {
    event.preventDefault();
    field.focus();
    if (field instanceof HTMLInputElement) field.select();
    else field.click();
  }
});
