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
