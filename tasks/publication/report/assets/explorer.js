"use strict";
// Looking up a region: search, way up and down the tree, its sizes, and how they came about.
// The numbers of all regions are in the page, packed (packing.py); only those shown are unpacked.
(() => {
  const byId = (id) => document.getElementById(id);
  const release = JSON.parse(byId("release").textContent);
  const { regions, sizes, measured, packed } = release;
  const SUGGESTIONS = 12;
  const ROWS_AT_FIRST = 40;
  const SHORTEST_RUN = 4;

  const number = new Intl.NumberFormat("en-US");
  const percent = (share) => `${(100 * share).toFixed(2)} %`;
  const isKnown = (value) => value !== null && value !== undefined;

  /** Make an element: attributes, then children (text or elements). */
  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  // ---- The tree ---------------------------------------------------------------------------

  const count = regions.ids.length;
  const indexOf = new Map(regions.ids.map((id, index) => [id, index]));
  const childrenOf = Array.from({ length: count }, () => []);
  for (let region = 1; region < count; region += 1) childrenOf[regions.parents[region]].push(region);
  const title = (region) => regions.names[region] || regions.ids[region];
  const levelOf = (region) => pathTo(region).length;
  const address = (region) => `#region=${encodeURIComponent(regions.ids[region])}`;
  const link = (region) => make("a", { href: address(region) }, title(region));

  /** The regions from the root down to this one. */
  function pathTo(region) {
    const path = [];
    for (let at = region; at >= 0; at = regions.parents[at]) path.unshift(at);
    return path;
  }

  // ---- Packed numbers ---------------------------------------------------------------------

  const unpackedBlocks = new Map();

  /** The bytes of a block, unpacked once. */
  function unpackedBlock(block) {
    if (!unpackedBlocks.has(block)) unpackedBlocks.set(block, unpack(byId(`block-${block}`)));
    return unpackedBlocks.get(block);
  }

  async function unpack(element) {
    const bytes = Uint8Array.from(atob(element.textContent), (letter) => letter.charCodeAt(0));
    const inflated = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
    return new Uint8Array(await new Response(inflated).arrayBuffer());
  }

  /** The numbers of one region, by column. */
  async function numbersOf(region) {
    const block = Math.floor(region / packed.rows_a_block);
    const bytes = await unpackedBlock(block);
    const first = block * packed.rows_a_block;
    const rows = Math.min(packed.rows_a_block, count - first);
    const columns = {};
    let start = 0;
    for (const [name, length] of packed.columns) {
      const cells = rows * length;
      let value = 0;
      columns[name] = Array.from({ length }, (_, k) => {
        let step = 0;
        for (let byte = packed.width - 1; byte >= 0; byte -= 1) {
          step = step * 256 + bytes[start + byte * cells + (region - first) * length + k];
        }
        value += step % 2 ? -(step + 1) / 2 : step / 2;
        return value;
      });
      start += packed.width * cells;
    }
    return columns;
  }

  // ---- Rows for tables and charts ---------------------------------------------------------

  const last = sizes[1];
  const sizeLabel = (size) => (size === last ? `${number.format(size)}+` : number.format(size));
  // Very many sizes are put into ranges; elsewhere each is a range by itself.
  const rangeAt = (k) => release.bins?.[k] ?? [sizes[0] + k, sizes[0] + k];
  const rangeLabel = ([from, to]) =>
    (from === to ? sizeLabel(from) : `${number.format(from)}–${number.format(to)}`);

  function sizeRows(numbers) {
    const total = numbers.released.reduce((sum, value) => sum + value, 0);
    return numbers.released.map((value, k) => ({
      size: rangeAt(k)[0],
      label: rangeLabel(rangeAt(k)),
      count: value,
      share: total ? value / total : null,
      lower: numbers.lower_90?.[k] ?? null,
      upper: numbers.upper_90?.[k] ?? null,
      lower_95: numbers.lower_95?.[k] ?? null,
      upper_95: numbers.upper_95?.[k] ?? null,
    }));
  }

  function stageRows(numbers) {
    let above = 0;
    const skipped = measured[0] - sizes[0]; // size 0, which may not be measured
    const released = numbers.released.slice(skipped);
    if (release.cumulative) {
      for (let k = released.length - 1; k >= 0; k -= 1) released[k] = above += released[k];
    }
    return released.map((value, k) => {
      const range = rangeAt(skipped + k);
      const [size] = range;
      const fitted = numbers.fitted?.[k] ?? null;
      return {
        size,
        label: release.cumulative ? `≥ ${number.format(size)}` : rangeLabel(range),
        noisy: numbers.measured[k],
        fitted,
        released: value,
        noisy_change: numbers.measured[k] - value,
        fitted_change: fitted === null ? null : fitted - value,
      };
    });
  }

  /** Put neighbouring rows together for as long as all of them are plain. */
  function runs(rows, isPlain) {
    const found = [];
    for (const row of rows) {
      const run = found.at(-1);
      if (run && !release.bins && isPlain(row) && isPlain(run[0])) run.push(row);
      else found.push([row]);
    }
    return found.flatMap((run) => (run.length < SHORTEST_RUN ? run.map((row) => [row]) : [run]));
  }

  const runLabel = (run) => (run.length > 1 ? `${run[0].label} to ${run.at(-1).label}` : run[0].label);

  // ---- Charts -----------------------------------------------------------------------------

  function decades(values) {
    const ticks = [0];
    const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
    for (let power = 1; power <= Math.max(-low, high); power *= 10) {
      if (power <= high) ticks.push(power);
      if (power <= -low) ticks.unshift(-power);
    }
    return ticks;
  }

  /** A chart that is drawn when it first gets rows, and can be filled again and again. */
  function chart(name) {
    const { vega, logarithmic } = release.charts[name];
    const options = { mode: "vega", renderer: "svg", actions: false, logLevel: 1 };
    let embedded = null;

    return async (rows) => {
      if (embedded === null) {
        vega.data.find((data) => data.name === "rows").values = rows;
        embedded = vegaEmbed(byId(`${name}-chart`), vega, options);
      }
      const { view } = await embedded;
      view.data("rows", rows);
      if (logarithmic.length) {
        const values = rows.flatMap((row) => logarithmic.map((field) => row[field]));
        view.signal("ticks", decades(values.filter(isKnown)));
      }
      await view.runAsync();
    };
  }

  const drawSizes = chart("sizes");
  const drawStages = chart("stages");
  const drawChanges = chart("changes");

  // ---- What is shown of a region ----------------------------------------------------------

  const cell = (text) => make("td", { class: "number" }, text);
  const between = (low, high) => `${number.format(low)} – ${number.format(high)}`;

  /** Fill a table with as many rows as are soon laid out; a button brings the others. */
  function fill(name, items, toRow) {
    const table = byId(`${name}-table`);
    const more = byId(`${name}-more`);
    table.tBodies[0].replaceChildren(...items.slice(0, ROWS_AT_FIRST).map(toRow));
    more.hidden = items.length <= ROWS_AT_FIRST;
    more.textContent = `Show all ${number.format(items.length)} rows`;
    more.onclick = () => {
      table.tBodies[0].append(...items.slice(ROWS_AT_FIRST).map(toRow));
      more.hidden = true;
      table.closest(".scroll").focus();
    };
  }

  function fillSizes(rows) {
    const hasMargins = rows.some((row) => isKnown(row.upper));
    fill("sizes", runs(rows, (row) => row.count === 0), (run) => {
      const [row] = run;
      const several = run.length > 1;
      const most = (field) => Math.max(...run.map((each) => each[field]));
      const margin = (low, high) =>
        cell(several ? `up to ${number.format(most(high))} each` : between(row[low], row[high]));
      return make(
        "tr", {},
        make("th", { scope: "row" }, runLabel(run)),
        cell(several ? "0 each" : number.format(row.count)),
        cell(row.share === null ? "–" : percent(row.share)),
        ...(hasMargins ? [margin("lower", "upper"), margin("lower_95", "upper_95")] : []),
      );
    });
  }

  function fillStages(rows) {
    fill("stages", runs(rows, (row) => row.released === 0 && !row.fitted), (run) => {
      const [row] = run;
      const several = run.length > 1;
      const noisy = run.map((each) => each.noisy);
      return make(
        "tr", {},
        make("th", { scope: "row" }, runLabel(run)),
        cell(several ? between(Math.min(...noisy), Math.max(...noisy)) : number.format(row.noisy)),
        ...(isKnown(row.fitted) ? [cell(several ? "0 each" : number.format(row.fitted))] : []),
        cell(several ? "0 each" : number.format(row.released)),
      );
    });
  }

  function fillPath(region) {
    const path = pathTo(region).map((at) => {
      const step = at === region
        ? make("span", { "aria-current": "page" }, title(at))
        : link(at);
      return make("li", {}, step);
    });
    byId("region-path").replaceChildren(...(region === 0 ? [] : path));
  }

  function fillChildren(region) {
    const children = childrenOf[region];
    fill("children", children, (child) => make(
      "tr", {},
      make("th", { scope: "row" }, link(child)),
      cell(number.format(regions.totals[child])),
    ));
    const isLowest = levelOf(region) === release.held_levels;
    byId("children").hidden = children.length === 0;
    byId("no-children").hidden = children.length > 0;
    byId("no-children").textContent = isLowest && release.held_levels < release.levels
      ? "Regions further down are too many for this page; the files of the release hold them."
      : "This region is not divided further.";
  }

  function fillFacts(region) {
    const groups = regions.groups[region];
    const parts = [
      `Id ${regions.ids[region]}`,
      `level ${levelOf(region)} of ${release.levels}`,
      `${number.format(regions.totals[region])} groups released`,
    ];
    if (isKnown(groups)) parts.push(`${number.format(groups)} groups in the public register`);
    byId("region-facts").textContent = `${parts.join(" · ")}.`;
    for (const element of document.querySelectorAll("[data-region-title]")) {
      element.textContent = title(region);
    }
  }

  let shown = -1;

  async function show(region) {
    if (region === shown) return;
    shown = region;
    const numbers = await numbersOf(region);
    if (region !== shown) return; // another one was chosen meanwhile
    const [bySize, byStage] = [sizeRows(numbers), stageRows(numbers)];
    fillFacts(region);
    fillPath(region);
    fillChildren(region);
    fillSizes(bySize);
    fillStages(byStage);
    await Promise.all([drawSizes(bySize), drawStages(byStage), drawChanges(byStage)]);
    document.body.dataset.region = regions.ids[region];
  }

  /** The region of the page's address: the root's where it names none. */
  function fromAddress() {
    if (!location.hash) return 0;
    const found = /^#region=(.*)$/.exec(location.hash);
    try {
      return found ? indexOf.get(decodeURIComponent(found[1])) : undefined;
    } catch {
      return undefined; // not an address that this page gave to anyone
    }
  }

  // ---- Search -----------------------------------------------------------------------------

  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  let searchable = null;

  /** The region of this id, regions whose id or name begins with the text, then those that hold it. */
  function find(text) {
    searchable ??= regions.ids.map((id, region) => plain(`${title(region)}\n${id}`));
    const wanted = plain(text.trim());
    const exact = indexOf.get(text.trim());
    const [first, second] = [[], []];
    for (let region = 0; wanted && region < count && first.length < SUGGESTIONS; region += 1) {
      const at = searchable[region].indexOf(wanted);
      if (at === 0 || searchable[region][at - 1] === "\n") first.push(region);
      else if (at > 0 && second.length < SUGGESTIONS) second.push(region);
    }
    const found = [exact, ...first, ...second].filter(isKnown);
    return [...new Set(found)].slice(0, SUGGESTIONS).map(suggestion);
  }

  function suggestion(region) {
    const above = pathTo(region).slice(0, -1).map(title).join(" › ");
    const id = regions.names[region] ? regions.ids[region] : "";
    return {
      title: title(region),
      detail: [id, above].filter(Boolean).join(" · "),
      choose: () => { location.hash = address(region); },
    };
  }

  // ---- Start ------------------------------------------------------------------------------

  for (const element of document.querySelectorAll("[data-needs-script]")) element.hidden = false;
  for (const element of document.querySelectorAll("[data-without-script]")) element.hidden = true;
  for (const box of document.querySelectorAll("[data-search]")) searchBox(box, find);
  addEventListener("hashchange", () => {
    const region = fromAddress();
    if (region !== undefined) show(region);
  });
  for (const place of [byId("children-table"), byId("region-path")]) {
    // What was clicked is about to be replaced, so the focus needs another place.
    place.addEventListener("click", (event) => event.target.matches("a") && byId("region-title").focus());
  }
  show(fromAddress() ?? 0);
})();
