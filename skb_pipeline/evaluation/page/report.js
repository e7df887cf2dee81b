"use strict";
// Texts of the data are put into the page by textContent alone, so that none of them is ever read as HTML.
const ANY = "any";
const FOUND = "found";
const NO_TEMPLATE = "(none)";
const PAGE = 50;
const ORDERS = {
  "as asked": (x, y) => 0,
  "largest win first": (x, y) => gain(y) - gain(x),
  "largest loss first": (x, y) => gain(x) - gain(y),
};
const FILTERS = ["text", "split", "outcome", "bucket_a", "bucket_b", "template", "order"];

// How much higher the first right answer stands in the first list, by reciprocal ranks.
function gain(question) {
  const worth = (rank) => (rank === null ? 0 : 1 / rank);
  return worth(question.a.rank) - worth(question.b.rank);
}

// Every word of the filter's text stands in the question, its id, its template or its anchors.
function holdsText(question, text) {
  const words = text.toLowerCase().split(/\s+/).filter((word) => word);
  if (!words.length) return true;
  const all = [question.id, question.query, question.template || "", question.anchors || ""].join("\n").toLowerCase();
  return words.every((word) => all.includes(word));
}

function matches(question, filter) {
  const is = (name, value) => filter[name] === undefined || filter[name] === ANY || filter[name] === value;
  return (
    is("split", question.split) &&
    is("outcome", question.outcome) &&
    is("bucket_a", question.a.bucket || FOUND) &&
    is("bucket_b", question.b.bucket || FOUND) &&
    is("template", question.template || NO_TEMPLATE) &&
    holdsText(question, filter.text || "")
  );
}

function filtered(questions, filter) {
  const found = questions.filter((question) => matches(question, filter));
  const order = ORDERS[filter.order];
  return order ? found.sort(order) : found;
}

// One page of a list; a number beyond the last gives the last.
function pageOf(list, number, size = PAGE) {
  const pages = Math.max(1, Math.ceil(list.length / size));
  const page = Math.min(Math.max(0, number), pages - 1);
  return { page, pages, rows: list.slice(page * size, (page + 1) * size) };
}

function start(data) {
  const at = (id) => document.getElementById(id);
  let page = 0;

  function element(name, text, style) {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = String(text);
    if (style) made.className = style;
    return made;
  }

  function choices(id, values) {
    for (const value of values) at(id).append(element("option", value));
  }

  function nodeText(index) {
    const [type, externalId, name] = data.nodes[index];
    return type ? `${name} (${type} ${externalId})` : externalId;
  }

  function rankText(side) {
    return side.rank === null ? "–" : side.rank;
  }

  function listOf(title, style, side) {
    const box = element("div");
    box.append(element("h3", `First of ${title}`, style));
    const why = [side.bucket || FOUND, side.cause, side.rule && `rule: ${side.rule}`].filter((part) => part);
    box.append(element("p", `first right answer: ${rankText(side)}; ${why.join("; ")}`));
    const list = element("ol");
    for (const [node, right] of side.first) list.append(element("li", nodeText(node), right ? "right" : ""));
    box.append(list);
    return box;
  }

  function answersOf(question) {
    const box = element("div");
    box.append(element("h3", `Answers (${question.n_answers})`));
    const list = element("ul");
    for (const [node, a, b] of question.answers) {
      list.append(element("li", `${nodeText(node)}: ${data.a} ${a === null ? "–" : a}, ${data.b} ${b === null ? "–" : b}`));
    }
    const more = question.n_answers - question.answers.length;
    if (more > 0) list.append(element("li", `and ${more} more`));
    box.append(list);
    return box;
  }

  function planOf(question) {
    const box = element("div");
    box.append(element("h3", "Plan"));
    box.append(element("p", question.facts));
    for (const [title, value] of [["", question.plan], ["Gold plan", question.gold_plan], ["Linked", question.links]]) {
      if (value === null) continue;
      if (title) box.append(element("h3", title));
      box.append(element("pre", typeof value === "string" ? value : JSON.stringify(value, null, 1)));
    }
    return box;
  }

  function detailsOf(question) {
    const row = element("tr");
    const cell = element("td");
    cell.colSpan = 5;
    cell.append(element("p", `${question.id}, ${question.split}${question.template ? `, ${question.template}` : ""}`, "small"));
    const facts = element("div", null, "facts");
    facts.append(listOf(data.a, "a", question.a), listOf(data.b, "b", question.b), answersOf(question), planOf(question));
    cell.append(facts);
    row.append(cell);
    return row;
  }

  function rowOf(question) {
    const row = element("tr");
    const toggle = element("button", "▸", "more");
    toggle.type = "button";
    toggle.setAttribute("aria-expanded", "false");
    toggle.setAttribute("aria-label", `More on ${question.id}`);
    let details = null;
    toggle.addEventListener("click", () => {
      if (details) details.remove();
      details = details ? null : detailsOf(question);
      if (details) row.after(details);
      toggle.textContent = details ? "▾" : "▸";
      toggle.setAttribute("aria-expanded", String(details !== null));
    });
    const first = element("td");
    first.append(toggle);
    row.append(first, element("td", question.query), element("td", rankText(question.a), "n"),
      element("td", rankText(question.b), "n"), element("td", question.outcome, `outcome ${question.outcome}`));
    return row;
  }

  function show() {
    const filter = Object.fromEntries(FILTERS.map((id) => [id, at(id).value]));
    const found = filtered(data.questions, filter);
    const shown = pageOf(found, page);
    page = shown.page;
    at("questions").tBodies[0].replaceChildren(...shown.rows.map(rowOf));
    const count = (outcome) => found.filter((question) => question.outcome === outcome).length;
    at("count").textContent =
      `${found.length} of ${data.questions.length} questions: ${count("win")} wins of ${data.a}, ` +
      `${count("loss")} losses, ${count("tie")} ties`;
    at("page").textContent = `page ${page + 1} of ${shown.pages}`;
    at("before").disabled = page === 0;
    at("after").disabled = page + 1 === shown.pages;
  }

  const values = (pick) => [...new Set(data.questions.map(pick))].sort();
  choices("split", [ANY, ...values((question) => question.split)]);
  choices("outcome", [ANY, "win", "loss", "tie"]);
  for (const side of ["a", "b"]) choices(`bucket_${side}`, [ANY, FOUND, ...data.buckets]);
  choices("template", [ANY, ...values((question) => question.template || NO_TEMPLATE)]);
  choices("order", Object.keys(ORDERS));
  const again = () => { page = 0; show(); };
  at("filters").addEventListener("input", again);
  at("filters").addEventListener("reset", () => setTimeout(again));
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("before").addEventListener("click", () => { page -= 1; show(); });
  at("after").addEventListener("click", () => { page += 1; show(); });
  show();
}

if (typeof document !== "undefined") start(JSON.parse(document.getElementById("data").textContent));
