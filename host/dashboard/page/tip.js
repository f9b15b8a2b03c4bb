// Shows the words of what the pointer or the focus is on, beside it, and leads from block to block with the arrow keys.

import { make } from './elements.js';

const GAP = 8;

export function tips(main) {
  const tip = make('div', { id: 'tip', 'aria-hidden': 'true', hidden: true });
  document.body.append(tip);
  const hide = () => { tip.hidden = true; };
  const show = (event) => {
    const target = event.target instanceof Element ? event.target.closest('[data-tip]') : null;
    if (!target) return hide();
    tip.replaceChildren(...target.getAttribute('data-tip').split('\n').map((line) => make('p', {}, line)));
    tip.hidden = false;
    const [at, own] = [target.getBoundingClientRect(), tip.getBoundingClientRect()];
    const below = at.bottom + GAP + own.height <= innerHeight;
    tip.style.left = `${Math.max(GAP, Math.min(innerWidth - own.width - GAP, at.left))}px`;
    tip.style.top = `${below ? at.bottom + GAP : Math.max(GAP, at.top - GAP - own.height)}px`;
  };
  main.addEventListener('pointerover', show);
  main.addEventListener('focusin', show);
  main.addEventListener('pointerleave', hide);
  main.addEventListener('focusout', hide);
  addEventListener('scroll', hide, { passive: true });
  addEventListener('keydown', (event) => {
    if (event.key === 'Escape') hide();
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const own = document.activeElement?.closest('.places');
    if (!step || !own || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = [...own.querySelectorAll('a[data-block]')];
    const next = all[all.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
  return hide;
}
