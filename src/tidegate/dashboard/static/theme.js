// Sets the theme that was chosen in this browser before the first paint, so that nothing flashes.
try {
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  /* no storage: use the system's preference */
}
