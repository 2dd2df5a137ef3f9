"use strict";
const make = (name, attributes = {}, ...children) => {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
};

// ---- theme: the system's, light or dark; kept where the browser allows it
const themes = ["system", "light", "dark"];
const themeButton = document.getElementById("theme");
const setTheme = (theme) => {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
};
const kept = (theme) => {
  try {
    if (theme) localStorage.setItem("isosphere-theme", theme);
    return localStorage.getItem("isosphere-theme");
  } catch { return null; }
};
let theme = themes.includes(kept()) ? kept() : "system";
setTheme(theme);
themeButton.hidden = false;
themeButton.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  setTheme(theme);
  kept(theme);
});

// ---- tables: a button in every heading sorts by its column
const quantity = (words) => Number(words.split(/\s/)[0] || NaN);
const sortBy = (table, column, descending) => {
  const body = table.tBodies[0];
  const entries = [...body.rows].map((row) => ({ row, words: row.cells[column].textContent.trim() }));
  const numeric = entries.every(({ words }) => words === "-" || words === "none" || !Number.isNaN(quantity(words)));
  const sign = descending ? -1 : 1;
  const absent = (words) => (numeric ? Number.isNaN(quantity(words)) : words === "-");
  entries.sort((a, b) => {
    if (absent(a.words) || absent(b.words)) return absent(a.words) - absent(b.words);
    if (numeric) return sign * (quantity(a.words) - quantity(b.words));
    return sign * a.words.localeCompare(b.words, undefined, { numeric: true });
  });
  body.append(...entries.map(({ row }) => row));
  [...table.tHead.rows[0].cells].forEach((cell) => cell.removeAttribute("aria-sort"));
  table.tHead.rows[0].cells[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
};
for (const table of document.querySelectorAll("table.sortable")) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = make("button", { type: "button" }, cell.textContent);
    button.addEventListener("click", () => {
      const before = cell.getAttribute("aria-sort");
      sortBy(table, column, before ? before === "ascending" : cell.classList.contains("n"));
    });
    cell.replaceChildren(button);
  });
}

// ---- what hovering, touching or focusing shows
const tip = document.getElementById("tip");
const showTip = (lines, x, y) => {
  tip.replaceChildren(...lines.map((line) => make("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 4))}px`;
  tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 12) : y + 18}px`;
};
const hideTip = () => { tip.hidden = true; };
addEventListener("scroll", hideTip, { passive: true });
addEventListener("pointerdown", hideTip, { capture: true });
const unlessTouched = (leave) => (event) => { if (event.pointerType !== "touch") leave(); };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });

// ---- galleries: queries to page through, each with its nearest images in every run
const PER_PAGE = 6;
const showGallery = (place, group) => {
  const source = (index) => `data:image/webp;base64,${group.images[index]}`;
  const className = (index) => group.names[group.labels[index]];
  const ofClass = (query, index) => group.labels[index] === group.labels[query.image];
  const isRight = (query, hits) => hits.length > 0 && ofClass(query, hits[0][0]);
  const verdict = (query, index) => (!group.labeled ? ["alone", "○", "no labels"] : query.alone ? ["alone", "○", "not of its class"] : ofClass(query, index) ? ["right", "✓", "right"] : ["wrong", "✗", "wrong"]);
  const filters = { "all shown": () => true };
  if (group.labeled) {
    filters["evenly spread"] = (query) => query.sample;
    filters["worst errors"] = (query) => query.worst >= 0;
    filters["first is wrong in a run"] = (query) => !query.alone && query.hits.some((hits) => !isRight(query, hits));
  }
  if (group.labeled && group.runs.length > 1) {
    filters["runs disagree on the first"] = (query) => new Set(query.hits.map((hits) => isRight(query, hits))).size > 1;
  }
  const picked = (name, choices) => {
    const list = make("select", {}, ...choices.map((choice) => make("option", { value: choice }, choice)));
    list.addEventListener("change", () => { page = 0; draw(); });
    return [make("label", {}, name, list), list];
  };
  const classes = [...new Set(group.queries.map((query) => className(query.image)))];
  classes.sort((a, b) => a.localeCompare(b, undefined, { numeric: true }));
  const [whichLabel, which] = picked("Queries", Object.keys(filters));
  const [classLabel, classList] = picked("Class", ["all classes", ...classes]);
  const back = make("button", { type: "button" }, "← Previous");
  const next = make("button", { type: "button" }, "Next →");
  const where = make("span", { role: "status" });
  const queries = make("div", { class: "queries" });
  let page = 0;

  const hit = (query, [index, cosine]) => {
    const [kind, sign, words] = verdict(query, index);
    const image = make("img", { src: source(index), alt: `${words}: ${className(index)}, cosine ${cosine.toFixed(3)}` });
    const mark = make("p", { "aria-hidden": "true" }, `${sign} ${cosine.toFixed(2)}`);
    const item = make("li", { class: `hit ${kind}`, tabindex: "0" }, image, mark);
    const lines = [`${sign} ${words}: ${className(index)}`, `label ${group.labels[index]}, image ${index}`, `cosine ${cosine.toFixed(4)}`];
    item.addEventListener("pointermove", (event) => showTip(lines, event.clientX, event.clientY));
    item.addEventListener("pointerleave", unlessTouched(hideTip));
    item.addEventListener("focus", () => {
      const frame = item.getBoundingClientRect();
      showTip(lines, frame.left, frame.bottom - 12);
    });
    item.addEventListener("blur", hideTip);
    return item;
  };
  const card = (query) => {
    const name = className(query.image);
    const asked = make("div", { class: "asked" }, make("img", { src: source(query.image), alt: `query: ${name}` }));
    const answers = make("div");
    group.runs.forEach((run, number) => {
      answers.append(make("h4", { style: `--c: ${run.color}` }, run.name));
      answers.append(make("ol", { class: "hits" }, ...query.hits[number].map((found) => hit(query, found))));
    });
    const why = query.alone ? ", no other image of its class" : query.worst >= 0 ? `, worst error no. ${query.worst + 1}` : "";
    const title = make("h3", {}, `${name} (image ${query.image}${why})`);
    return make("article", { class: "query" }, title, make("div", { class: "body" }, asked, answers));
  };
  const draw = () => {
    hideTip();
    let shown = group.queries.filter(filters[which.value]);
    if (classList.selectedIndex > 0) shown = shown.filter((query) => className(query.image) === classList.value);
    if (which.value === "worst errors") shown.sort((a, b) => a.worst - b.worst);
    const pages = Math.max(1, Math.ceil(shown.length / PER_PAGE));
    queries.replaceChildren(...shown.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map(card));
    where.textContent = shown.length ? `page ${page + 1} of ${pages}, ${shown.length} queries` : "no such query";
    back.disabled = page === 0;
    next.disabled = page >= pages - 1;
  };
  back.addEventListener("click", () => { page -= 1; draw(); });
  next.addEventListener("click", () => { page += 1; draw(); });
  const choices = group.labeled ? [whichLabel, classLabel] : [];
  place.append(make("div", { class: "controls" }, ...choices, back, next, where), queries);
  draw();
};
const groups = JSON.parse(document.getElementById("galleries").textContent);
for (const place of document.querySelectorAll(".gallery")) showGallery(place, groups[place.dataset.group]);
