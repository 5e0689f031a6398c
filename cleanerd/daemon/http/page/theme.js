// Before anything is painted: the theme that was chosen here last, if any; else the system's.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("cleanerd.theme");
  } catch {
    // Storage is switched off: the system's theme it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
