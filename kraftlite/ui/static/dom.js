// A description of elements, and the least change that makes the document look like it. Text is text: nothing is parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

/** Describe an element: `h("p", {class: "soft"}, "text", child, …)`. False, null and undefined children are left out. The same
 * description twice costs nothing the second time. */
export function h(tag, props, ...children) {
  return { tag, props: props || {}, children: children.flat(Infinity).filter((it) => it !== false && it !== null && it !== undefined) };
}

/** Make the children of `parent` look like `wanted`; elements that stay keep their focus and their state. */
export function render(parent, ...wanted) {
  patch(parent, wanted.flat(Infinity).filter((it) => it !== false && it !== null && it !== undefined), parent.namespaceURI === SVG);
}

function patch(parent, wanted, svg) {
  const keyed = new Map();
  for (const node of parent.childNodes) if (node._key !== undefined) keyed.set(node._key, node);
  let at = parent.firstChild;
  for (const want of wanted) {
    if (typeof want !== "object") {
      const text = String(want);
      if (at && at.nodeType === Node.TEXT_NODE) {
        if (at.data !== text) at.data = text;
        at = at.nextSibling;
      } else parent.insertBefore(document.createTextNode(text), at);
      continue;
    }
    const key = want.props.key;
    let node = key !== undefined ? keyed.get(key) : at;
    if (!(node && node._tag === want.tag && node._key === key)) node = create(want, svg);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    update(node, want, svg || want.tag === "svg");
  }
  while (at) {
    const next = at.nextSibling;
    parent.removeChild(at);
    at = next;
  }
}

function create(want, svg) {
  const inSvg = svg || want.tag === "svg";
  const node = inSvg ? document.createElementNS(SVG, want.tag) : document.createElement(want.tag);
  node._tag = want.tag;
  node._key = want.props.key;
  node._props = {};
  return node;
}

function update(node, want, svg) {
  if (node._want === want) return;
  node._want = want;
  const old = node._props;
  for (const name of Object.keys(old)) if (!(name in want.props)) set(node, name, undefined);
  for (const [name, value] of Object.entries(want.props)) {
    if (name === "style") for (const [rule, text] of Object.entries(value)) node.style.setProperty(rule, text);
    else if (old[name] !== value) set(node, name, value);
  }
  node._props = want.props;
  patch(node, want.children, svg);
}

function set(node, name, value) {
  if (name === "key") return;
  if (name.startsWith("on")) node[name] = value || null;
  else if (name === "value" || name === "checked") {
    if (node[name] !== value) node[name] = value;
  } else if (value === undefined || value === false || value === null) node.removeAttribute(name);
  else node.setAttribute(name, value === true ? "" : value);
}
