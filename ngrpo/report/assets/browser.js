"use strict";
// The rollout browser. Text of models and data sets goes into text nodes only.
(() => {
  const records = JSON.parse(document.getElementById("records").textContent);
  const groups = document.getElementById("groups");
  if (!groups) return;
  const control = (name) => document.getElementById(name);
  const detail = control("detail");
  const FAINTEST = 0.05; // nats: below it there is no tint
  // What tokens are tinted by, in nats: where the tint is full, and what it means.
  const TINTS = {
    logProbs: {
      strongest: 5,
      meaning: "minus the log-prob under the policy that wrote the token: the stronger, the less likely.",
      nats: (record, place) => -(record.logProbs[place] ?? -Infinity),
    },
    entropies: {
      strongest: 3,
      meaning: "entropy of the policy before the token, when it learned from it: the stronger, the more open.",
      nats: (record, place) => record.entropies[place] ?? 0,
    },
  };
  const FULL = 60; // per cent of the tint's colour
  const known = new WeakMap(); // token element -> rollout and place

  function make(tag, className, ...children) {
    const node = document.createElement(tag);
    if (className) node.className = className;
    node.append(...children.map((child) => (child instanceof Node ? child : String(child))));
    return node;
  }

  const shown = (token) => (token === "" ? "\u25ab" : token.replace(/\n/g, "\u21b5\n"));
  const named = (token) => make("code", "", token.trim() === "" ? JSON.stringify(token) : token.replace(/\n/g, "\u21b5"));
  const number = (value) => (value === null ? "none" : String(Number(value.toPrecision(4))));

  // Without the sign of what is rounded to nothing.
  const fixed = (value, digits) => (Number(value.toFixed(digits)) + 0).toFixed(digits);

  function tokenNode(record, place) {
    const node = make("span", "token", shown(record.tokens[place]));
    node.tabIndex = -1;
    if (record.mixed[place]) {
      node.classList.add("mixed");
      node.setAttribute("aria-label", `${record.tokens[place]}, mixed`);
    }
    known.set(node, { record, place });
    tint(node);
    return node;
  }

  function tint(node) {
    const { record, place } = known.get(node);
    const { strongest, nats } = TINTS[control("tint").value];
    const value = nats(record, place);
    const share = value < FAINTEST ? 0 : Math.min(value / strongest, 1) * FULL;
    node.style.setProperty("--tint", `${share.toFixed(1)}%`);
  }

  function tintAll() {
    const { strongest, meaning } = TINTS[control("tint").value];
    control("strongest").textContent = `${strongest}+`;
    control("meaning").textContent = meaning;
    groups.querySelectorAll(".token").forEach(tint);
  }

  function facts(record) {
    const line = make("p", "facts", make("b", "", `reward ${number(record.reward)}`), `, ${record.verdict.replace(/_/g, " ")}`);
    line.append(`, answer ${record.answer ?? "none"}, advantage ${number(record.advantage)}, ${record.length} tokens`);
    line.append(record.stop === "length" ? ", cut off" : "");
    line.append(record.forks.length ? `, forks before token ${record.forks.map((place) => place + 1).join(", ")}` : "");
    return line;
  }

  function response(record) {
    const text = make("div", "text", ...record.tokens.map((_, place) => tokenNode(record, place)));
    const hidden = record.length - record.tokens.length;
    if (hidden > 0) text.append(make("em", "", ` \u2026 ${hidden} more tokens are not stored`));
    text.setAttribute("role", "group");
    text.setAttribute("aria-label", "tokens; move with the arrow keys");
    const first = text.querySelector(".mixed") ?? text.querySelector(".token");
    if (first) first.tabIndex = 0;
    const right = record.verdict === "correct" ? "right" : "wrong";
    return make("article", `response ${right}`, facts(record), text);
  }

  function fits(record) {
    const verdict = control("verdict").value;
    const least = control("least").valueAsNumber;
    const most = control("most").valueAsNumber;
    const mixing = control("mixing").value;
    const mixed = Object.keys(record.mixed).length > 0;
    return (
      (verdict === "all" || record.verdict === verdict) &&
      (Number.isNaN(least) || (record.reward !== null && record.reward >= least)) &&
      (Number.isNaN(most) || (record.reward !== null && record.reward <= most)) &&
      (mixing === "all" || mixed === (mixing === "some"))
    );
  }

  function render() {
    hide();
    const all = records[control("iteration").value] ?? [];
    const chosen = all.filter(fits);
    const byGroup = new Map();
    for (const record of chosen) byGroup.set(record.group, [...(byGroup.get(record.group) ?? []), record]);
    groups.replaceChildren(
      ...[...byGroup.values()].map((members) => {
        const question = make("h3", "question", members[0].question, make("small", "", `answer: ${members[0].reference}`));
        return make("div", "group", question, make("div", "responses", ...members.map(response)));
      }),
    );
    control("count").textContent = `${chosen.length} of ${all.length} rollouts`;
  }

  function mixture(mixed) {
    if (mixed.names.length === 0) return [make("p", "", "fed: a recorded vector, no sum of tokens")];
    return mixed.names.map((name, index) => {
      const bar = make("meter", "");
      bar.max = 1;
      bar.value = mixed.weights[index];
      bar.setAttribute("aria-hidden", "true");
      return make("div", "weight", named(name), bar, make("span", "", fixed(mixed.weights[index], 3)));
    });
  }

  function show(node) {
    hide();
    const { record, place } = known.get(node);
    const logProb = record.logProbs[place];
    const chance = logProb === null ? "none" : `${fixed(logProb, 2)} nats (${(100 * Math.exp(logProb)).toPrecision(3)} %)`;
    const entropy = record.entropies[place] ?? null;
    const spread = entropy === null ? "" : `, entropy ${fixed(entropy, 2)} nats`;
    const mixed = record.mixed[place];
    detail.replaceChildren(
      make("p", "", named(record.tokens[place]), ` token ${place + 1} of ${record.length}, log-prob ${chance}${spread}`),
      ...(mixed ? [make("p", "", "mixed, weights:"), ...mixture(mixed)] : []),
      ...(mixed && mixed.noise !== null ? [make("p", "", `with noise of scale ${number(mixed.noise)}`)] : []),
    );
    node.classList.add("shown");
    detail.hidden = false;
    put(node);
  }

  function put(node) {
    const at = node.getBoundingClientRect();
    const size = detail.getBoundingClientRect();
    const below = at.bottom + 8 + size.height < window.innerHeight;
    detail.style.top = `${Math.max(8, below ? at.bottom + 8 : at.top - 8 - size.height)}px`;
    detail.style.left = `${Math.max(8, Math.min(at.left, window.innerWidth - size.width - 8))}px`;
  }

  function hide() {
    detail.hidden = true;
    for (const node of groups.querySelectorAll(".shown")) node.classList.remove("shown");
  }

  function move(node, key) {
    const tokens = [...node.parentElement.querySelectorAll(".token")];
    const here = tokens.indexOf(node);
    const later = tokens.slice(here + 1).find((token) => token.classList.contains("mixed"));
    const target = {
      ArrowRight: tokens[here + 1],
      ArrowLeft: tokens[here - 1],
      Home: tokens[0],
      End: tokens.at(-1),
      m: later ?? tokens.find((token) => token.classList.contains("mixed")),
    }[key];
    if (!target) return;
    node.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }

  const tokenOf = (event) => event.target.closest?.(".token");
  groups.addEventListener("mouseover", (event) => tokenOf(event) && show(tokenOf(event)));
  groups.addEventListener("mouseleave", hide);
  groups.addEventListener("click", (event) => tokenOf(event) && show(tokenOf(event)));
  groups.addEventListener("focusin", (event) => tokenOf(event) && show(tokenOf(event)));
  groups.addEventListener("focusout", hide);
  groups.addEventListener("keydown", (event) => {
    const token = tokenOf(event);
    if (!token || event.ctrlKey || event.metaKey || event.altKey) return;
    if (["ArrowRight", "ArrowLeft", "Home", "End", "m"].includes(event.key)) {
      event.preventDefault();
      move(token, event.key);
    }
  });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
  const follow = () => detail.hidden || put(groups.querySelector(".shown"));
  window.addEventListener("scroll", follow, { passive: true, capture: true });
  window.addEventListener("resize", follow);

  const option = (value, text) => Object.assign(make("option", "", text), { value });
  const iterations = Object.keys(records).map(Number).sort((a, b) => a - b);
  control("iteration").append(...iterations.map((n) => option(n, n + 1)));
  control("iteration").value = String(iterations.at(-1));
  const verdicts = new Set(Object.values(records).flat().map((record) => record.verdict));
  control("verdict").append(option("all", "all"), ...[...verdicts].sort().map((v) => option(v, v.replace(/_/g, " "))));
  control("filter").addEventListener("input", render);
  control("filter").addEventListener("submit", (event) => event.preventDefault());
  control("tint").addEventListener("input", tintAll);
  render();
  tintAll();
})();
