// Exchanges the content of the page without moving what the pointer is on, and keeps what is open and what has the focus.

// The position of the pointer on the content, if it is there.
let pointer = null;

// Follows the pointer. `leave` is called when it leaves the content.
export function watchPointer(main, leave) {
  main.addEventListener('pointermove', (event) => { pointer = event.pointerType === 'mouse' ? [event.clientX, event.clientY] : null; }, { passive: true });
  main.addEventListener('pointerleave', () => {
    pointer = null;
    leave();
  });
}

// What the pointer is on: its key and its position.
function anchor(main) {
  const element = pointer && document.elementFromPoint(...pointer)?.closest('[data-key]');
  if (!element || !main.contains(element)) return null;
  const { left, top } = element.getBoundingClientRect();
  return { key: element.getAttribute('data-key'), left, top };
}

function distance(main, { key, left, top }) {
  const now = main.querySelector(`[data-key="${CSS.escape(key)}"]`)?.getBoundingClientRect();
  return now ? [now.left - left, now.top - top] : [NaN, NaN];
}

// Replaces the content. Returns false if that would move what the pointer is on: then the content is the old one.
export function exchange(main, content, isForced) {
  const held = isForced ? null : anchor(main);
  const before = [...main.childNodes];
  const { activeElement } = document;
  const focus = main.contains(activeElement) ? ['data-row', 'data-block'].map((name) => [name, activeElement.getAttribute(name)]).find(([, key]) => key) : null;
  const open = [...main.querySelectorAll('details[open][data-open]')].map((one) => one.getAttribute('data-open'));
  for (const one of content.querySelectorAll('details[data-open]')) one.open = open.includes(one.getAttribute('data-open'));
  main.replaceChildren(content);
  if (held) {
    const [, down] = distance(main, held);
    if (Math.abs(down) >= 1) scrollBy(0, down);
    const [x, y] = distance(main, held);
    if (!(Math.abs(x) < 1 && Math.abs(y) < 1)) {
      main.replaceChildren(...before);
      if (Math.abs(down) >= 1) scrollBy(0, -down);
      activeElement?.focus({ preventScroll: true });
      return false;
    }
  }
  if (focus) main.querySelector(`[${focus[0]}="${CSS.escape(focus[1])}"]`)?.focus({ preventScroll: true });
  return true;
}
