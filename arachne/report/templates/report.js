"use strict";
(() => {
  const root = document.documentElement;
  const theme = document.getElementById("theme");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    theme.setAttribute("aria-pressed", String(!dark));
  });

  for (const group of document.querySelectorAll("[data-toggle]")) {
    const views = [...document.querySelectorAll(`[data-view^="${group.dataset.toggle}:"]`)];
    const show = (button) => {
      for (const one of group.querySelectorAll("button")) {
        one.setAttribute("aria-pressed", String(one === button));
      }
      for (const view of views) {
        view.classList.toggle("away", view.dataset.view !== `${group.dataset.toggle}:${button.value}`);
      }
    };
    group.hidden = false;
    for (const button of group.querySelectorAll("button")) {
      button.addEventListener("click", () => show(button));
    }
    show(group.querySelector("button[data-first]"));
  }

  for (const box of document.querySelectorAll("[data-only-target]")) {
    box.parentElement.hidden = false;
    box.addEventListener("change", () => {
      for (const card of document.querySelectorAll(`#${box.dataset.onlyTarget} li, #${box.dataset.onlyTarget} tbody tr`)) {
        card.hidden = box.checked && !("target" in card.dataset);
      }
    });
  }

  for (const button of document.querySelectorAll("[data-more]")) {
    const gallery = document.getElementById(button.dataset.more);
    gallery.classList.add("short");
    button.hidden = false;
    button.addEventListener("click", () => {
      gallery.classList.remove("short");
      button.hidden = true;
      gallery.querySelector(".more").scrollIntoView({ block: "nearest" });
    });
  }

  const walk = document.getElementById("front-walk");
  if (walk) {
    const MOST = 18;
    const slider = document.getElementById("front-slider");
    const told = document.getElementById("front-told");
    const points = [...document.querySelectorAll("[data-front]")];
    const marks = [...document.querySelectorAll("svg [data-point]")];
    const known = new Map();
    for (const card of document.querySelectorAll("#front-inputs > li, .gallery > li[data-row]")) {
      known.set(card.dataset.row, card);
    }
    const write = (tag, text, parent) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));
    const picture = (card, kind) => {
      const item = document.createElement("li");
      const figure = item.appendChild(document.createElement("figure"));
      figure.append(card.querySelector("img, blockquote, svg").cloneNode(true));
      const caption = figure.appendChild(document.createElement("figcaption"));
      write("b", card.dataset.label, caption);
      caption.append(document.createElement("br"));
      if (kind === "fixed") {
        write("span", card.dataset.before, caption).className = "was";
        caption.append(document.createElement("br"));
      }
      write("span", card.dataset.name, caption).className = "mono";
      return item;
    };
    const fill = (point) => {
      for (const list of point.querySelectorAll("[data-kind]")) {
        const left = list.nextElementSibling;
        const rows = left.dataset.rows.split(" ").filter((row) => row);
        const shown = rows.filter((row) => known.has(row)).slice(0, MOST);
        list.replaceChildren(...shown.map((row) => picture(known.get(row), list.dataset.kind)));
        const rest = rows.filter((row) => !shown.includes(row));
        const more = Number(left.dataset.total) - rows.length;
        left.textContent = rest.length
          ? `${shown.length ? "and inputs" : "inputs"} ${rest.join(", ")}${more ? `, and ${more} more` : ""}`
          : "";
      }
    };
    const show = () => {
      const now = Number(slider.value);
      points.forEach((point, number) => {
        point.hidden = number !== now;
      });
      const words = points[now].querySelector("[data-told]");
      words.hidden = true;
      told.textContent = words.textContent;
      slider.setAttribute("aria-valuetext", words.textContent);
      fill(points[now]);
      for (const mark of marks) {
        mark.classList.toggle("now", Number(mark.dataset.point) === now);
      }
    };
    const go = (number) => {
      slider.value = String(number);
      show();
    };
    walk.hidden = false;
    document.getElementById("front-table").open = false;
    slider.addEventListener("input", show);
    document.getElementById("front-back").addEventListener("click", () => go(Number(slider.value) - 1));
    document.getElementById("front-on").addEventListener("click", () => go(Number(slider.value) + 1));
    for (const mark of marks) {
      mark.addEventListener("click", () => go(mark.dataset.point));
    }
    show();
  }

  const tables = [...document.querySelectorAll(".scroll")];
  const measure = () => {
    for (const table of tables) {
      const hidden = table.scrollWidth - table.clientWidth;
      table.classList.toggle("wide", hidden > 4);
      table.classList.toggle("more-right", hidden - table.scrollLeft > 4);
    }
  };
  for (const table of tables) {
    table.addEventListener("scroll", measure, { passive: true });
  }
  addEventListener("resize", measure);
  addEventListener("click", measure);
  measure();

  const copy = document.getElementById("copy");
  if (copy) {
    copy.hidden = false;
    copy.addEventListener("click", () => {
      getSelection().selectAllChildren(document.getElementById("command"));
      const copied = document.execCommand("copy");
      document.getElementById("copied").textContent = copied ? "copied" : "press Ctrl+C to copy";
    });
  }
})();
