// Before the first paint: the theme that this browser chose, so that nothing flashes.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  /* no storage: the system's preference stands */
}
