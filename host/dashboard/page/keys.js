// The keys of the page.

import { NAMES, link } from './place.js';

export function keys({ main, field, help, commands }) {
  const rows = () => [...main.querySelectorAll('[data-row]')];
  const move = (step) => {
    const all = rows();
    const now = all.indexOf(document.activeElement);
    const next = now < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + step));
    all[next]?.focus();
  };
  const acts = {
    '/': () => field.focus(),
    j: () => move(1),
    k: () => move(-1),
    n: () => main.querySelector('a[rel="next"]')?.click(),
    p: () => main.querySelector('a[rel="prev"]')?.click(),
    c: () => commands.showModal(),
    '?': () => help.showModal(),
  };
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target instanceof HTMLInputElement || help.open || commands.open;
    if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const view = NAMES[Number(event.key) - 1];
    const act = view ? () => { location.hash = link(view); } : acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
}
