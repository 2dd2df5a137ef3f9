// What a gallery says is put in as text, never as markup. Every search is an entry of the browser's history.
const at = (id) => document.getElementById(id);
const make = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};
const number = (value) => value.toLocaleString("en");

// ---- theme, as on the report's pages
const themes = ["system", "light", "dark"];
const kept = (theme) => {
  try {
    if (theme) localStorage.setItem("isosphere-theme", theme);
    return localStorage.getItem("isosphere-theme");
  } catch { return null; }
};
let theme = themes.includes(kept()) ? kept() : "system";
const setTheme = () => {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  at("theme").textContent = `Theme: ${theme}`;
};
setTheme();
at("theme").hidden = false;
at("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme();
  kept(theme);
});

// ---- the server
const asked = async (path, options) => {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(found.error ? `${found.error[0].toUpperCase()}${found.error.slice(1)}.` : `Error ${answer.status}.`);
  return found;
};
const problem = (text) => {
  at("problem").textContent = text;
  at("problem").hidden = !text;
};

// ---- what is shown
let gallery = null;
const photos = new Map(); // of this visit, by a number that the history keeps
const MOST_PHOTOS = 20;
const keep = (file) => {
  const key = Date.now();
  photos.set(key, { file, picture: URL.createObjectURL(file) });
  for (const [old, { picture }] of photos) {
    if (photos.size <= MOST_PHOTOS) break;
    URL.revokeObjectURL(picture);
    photos.delete(old);
  }
  return key;
};

const card = (item) => {
  const label = item.label ?? item.path.split("/").pop();
  const score = item.score === undefined ? "" : item.score.toFixed(3);
  const picture = item.thumbnail
    ? make("img", { src: item.thumbnail, alt: "", decoding: "async" })
    : make("div", { class: "none" }, item.path);
  const words = make("p", {}, make("b", {}, label), ...(score ? [make("small", {}, `cosine ${score}`)] : []));
  const spoken = [label, score && `cosine ${score}`, "show its neighbors"].filter(Boolean).join(", ");
  const button = make("button", { type: "button", class: "card", title: item.path, "aria-label": spoken }, picture, words);
  button.addEventListener("click", () => go({ id: item.id }));
  return make("li", {}, button);
};
const show = (title, status, items) => {
  at("title").textContent = title;
  at("status").textContent = status;
  at("found").replaceChildren(...items.map(card));
};
const showAsked = (picture, words) => {
  at("asked").hidden = !picture;
  if (picture) at("asked").src = picture;
  else at("asked").removeAttribute("src");
  at("words").textContent = words;
  at("more").textContent = picture ? "- drop or paste another" : "or paste one";
};
const title = ({ label }, photo, query) => {
  if (query) return `Most like ${query.path.split("/").pop()}`;
  if (photo) return "Most like your photo";
  if (label) return label;
  return gallery.takes_images ? "Or begin with one of these" : "Begin with one of these";
};
const status = ({ label }, searched, count) => {
  const only = label ? ` of ${label}` : "";
  if (!count) return `There are no others${only}.`;
  return searched ? `${number(count)} images${only}, best first.` : `${number(count)} images, evenly spread.`;
};

// ---- one search at a time; an older answer never replaces a newer one
let running = null;
const search = async (state, focus) => {
  running?.abort();
  running = null;
  problem("");
  at("found").removeAttribute("aria-busy");
  at("label").value = state.label ?? "";
  at("k").value = String(state.k ?? 24);
  const photo = photos.get(state.photo);
  const searched = state.id !== undefined || Boolean(photo);
  const mine = (running = new AbortController());
  at("found").setAttribute("aria-busy", "true");
  at("reset").hidden = !searched && !state.label;
  if (photo) showAsked(photo.picture, photo.file.name || "A pasted photo");
  else if (!searched) showAsked(null, "Drop a photo here");
  const wanted = new URLSearchParams({ k: at("k").value });
  if (state.label) wanted.append("label", state.label);
  try {
    const found = photo
      ? await asked(`/search?${wanted}`, { method: "POST", body: photo.file, signal: mine.signal })
      : await asked(`${searched ? `/neighbors/${state.id}` : "/images"}?${wanted}`, { signal: mine.signal });
    const { query, results } = found;
    if (query) showAsked(query.thumbnail, query.label ?? query.path);
    show(title(state, photo, query), status(state, searched, results.length), results);
    if (focus) {
      at("title").focus({ preventScroll: true });
      at("ask").scrollIntoView({ block: "start" });
    }
  } catch (error) {
    if (error.name !== "AbortError") problem(error.message);
  } finally {
    if (running === mine) at("found").removeAttribute("aria-busy");
  }
};
const go = (change) => {
  const before = history.state ?? {};
  const state = { ...before, ...change };
  if (change.id !== undefined) delete state.photo;
  if (change.photo !== undefined) delete state.id;
  const shown = new URLSearchParams();
  if (state.id !== undefined) shown.set("id", state.id);
  if (state.label) shown.set("label", state.label);
  history.pushState(state, "", `?${shown}`);
  search(state, change.id !== undefined || change.photo !== undefined);
};
addEventListener("popstate", () => search(history.state ?? {}, false));

// ---- photos: chosen, dropped anywhere on the page, or pasted
const take = (file) => {
  if (!gallery?.takes_images) return;
  if (!file) return problem("That was not a photo. Drop or paste an image file.");
  if (file.size > gallery.limits.bytes) {
    return problem(`This file has ${(file.size / 1e6).toFixed(0)} MB; ${gallery.limits.bytes / 1e6} MB are the limit.`);
  }
  go({ photo: keep(file) });
};
const first = (files) => [...files].find((file) => file.type.startsWith("image/"));
at("file").addEventListener("change", ({ target }) => {
  if (target.files.length) take(target.files[0]);
  target.value = "";
});
let depth = 0; // dragging over a child leaves its parent
addEventListener("dragenter", (event) => {
  event.preventDefault();
  depth += 1;
  at("drop").classList.add("over");
});
addEventListener("dragleave", () => {
  depth -= 1;
  if (depth <= 0) at("drop").classList.remove("over");
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  depth = 0;
  at("drop").classList.remove("over");
  take(first(event.dataTransfer.files));
});
addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (files.length) take(first(files));
});

// ---- the filter
let typed = 0;
at("label").addEventListener("input", async ({ target }) => {
  typed += 1;
  const mine = typed;
  await new Promise((done) => setTimeout(done, 120));
  if (mine !== typed) return;
  const { labels } = await asked(`/labels?${new URLSearchParams({ like: target.value })}`).catch(() => ({ labels: [] }));
  if (mine === typed) at("labels").replaceChildren(...labels.map(({ label, images }) => make("option", { value: label }, number(images))));
});
at("label").addEventListener("change", ({ target }) => go({ label: target.value.trim() }));
at("k").addEventListener("change", ({ target }) => go({ k: Number(target.value) }));
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("reset").addEventListener("click", () => {
  history.pushState({}, "", "?");
  search({}, false);
  (gallery.takes_images ? at("file") : at("title")).focus();
});

// ---- arrows walk through the images
at("found").addEventListener("keydown", (event) => {
  const cards = [...at("found").querySelectorAll(".card")];
  const here = cards.indexOf(document.activeElement);
  if (here < 0) return;
  const columns = cards.filter((one) => one.offsetTop === cards[0].offsetTop).length;
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -here, End: cards.length - 1 - here };
  if (!(event.key in moves)) return;
  event.preventDefault();
  cards[here + moves[event.key]]?.focus();
});

// ---- begin
try {
  gallery = await asked("/gallery");
  document.title = `${gallery.name} - isosphere`;
  at("name").textContent = gallery.name;
  at("size").textContent = `${number(gallery.images)} images${gallery.labels ? `, ${number(gallery.labels)} labels` : ""}`;
  at("drop").hidden = !gallery.takes_images;
  at("only").hidden = !gallery.labels;
  const given = new URLSearchParams(location.search);
  const state = history.state ?? { ...(given.get("id") && { id: given.get("id") }), ...(given.get("label") && { label: given.get("label") }) };
  history.replaceState(state, "");
  await search(state, false);
  at("label").dispatchEvent(new Event("input"));
} catch (error) {
  problem(error.message);
}
