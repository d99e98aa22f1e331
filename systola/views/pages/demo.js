// SPDX-License-Identifier: Apache-2.0
"use strict";

const SIDE = 32; // dots of the paper; a pixel of the network's picture is a block of 4 x 4 of them
const BLOCK = 4;
const BRUSH = 1.7; // radius, in dots
const STEP_MS = 250; // of a cycle that is played

const $ = (id) => document.getElementById(id);
const paper = $("paper");
const context = paper.getContext("2d", { willReadFrequently: true });

// ---- Paper --------------------------------------------------------------------------------------

function clear() {
  context.fillStyle = "#000";
  context.fillRect(0, 0, SIDE, SIDE);
}

function dots() {
  const data = context.getImageData(0, 0, SIDE, SIDE).data;
  return Array.from({ length: SIDE * SIDE }, (_, i) => data[4 * i] / 255);
}

// The picture as the data set has it: moved and scaled so that the digit fills the height, then the
// dots of each block counted.
function pixels() {
  const set = dots();
  const used = [...set.keys()].filter((i) => set[i] > 0.5);
  if (!used.length) return null;
  const xs = used.map((i) => i % SIDE);
  const ys = used.map((i) => Math.floor(i / SIDE));
  const [left, right] = [Math.min(...xs), Math.max(...xs) + 1];
  const [top, bottom] = [Math.min(...ys), Math.max(...ys) + 1];
  const scale = SIDE / Math.max(bottom - top, right - left);
  const fitted = document.createElement("canvas");
  fitted.width = fitted.height = SIDE;
  const other = fitted.getContext("2d");
  const [width, height] = [scale * (right - left), scale * (bottom - top)];
  const place = [(SIDE - width) / 2, (SIDE - height) / 2, width, height];
  other.drawImage(paper, left, top, right - left, bottom - top, ...place);
  const data = other.getImageData(0, 0, SIDE, SIDE).data;
  const counts = Array(64).fill(0);
  for (let i = 0; i < SIDE * SIDE; ++i) {
    const [x, y] = [i % SIDE, Math.floor(i / SIDE)];
    counts[8 * Math.floor(y / BLOCK) + Math.floor(x / BLOCK)] += data[4 * i] / 255;
  }
  return counts.map((count) => Math.min(16, Math.round(count)));
}

let last = null;

function draw(event) {
  const box = paper.getBoundingClientRect();
  const at = {
    x: ((event.clientX - box.left) / box.width) * SIDE,
    y: ((event.clientY - box.top) / box.height) * SIDE,
  };
  context.strokeStyle = context.fillStyle = "#fff";
  context.lineWidth = 2 * BRUSH;
  context.lineCap = "round";
  context.beginPath();
  context.moveTo((last ?? at).x, (last ?? at).y);
  context.lineTo(at.x + 0.01, at.y);
  context.stroke();
  last = at;
}

paper.addEventListener("pointerdown", (event) => {
  paper.setPointerCapture(event.pointerId);
  last = null;
  draw(event);
});
paper.addEventListener("pointermove", (event) => event.buttons && draw(event));
paper.addEventListener("pointerup", () => classify(pixels()));
$("clear").addEventListener("click", clear);
$("classify").addEventListener("click", () => classify(pixels()));

// ---- Answer -------------------------------------------------------------------------------------

async function classify(picture) {
  if (!picture) {
    $("answer").textContent = "The paper is empty.";
    return;
  }
  $("answer").textContent = "The machine runs ...";
  try {
    const reply = await fetch("classify", { method: "POST", body: JSON.stringify(picture) });
    const found = await reply.json();
    if (!reply.ok) throw new Error(found.error);
    const cycles = found.cycles.toLocaleString("en");
    $("answer").textContent = `It is a ${found.digit}, after ${cycles} cycles on the RTL.`;
    show(found);
  } catch (error) {
    $("answer").textContent = `No answer: ${error.message}`;
  }
}

function show(found) {
  $("scores").replaceChildren(
    ...found.scores.map((score, digit) => {
      const item = document.createElement("li");
      const meter = document.createElement("meter");
      meter.max = 255;
      meter.value = score;
      meter.setAttribute("aria-label", `score of ${digit}`);
      item.append(meter);
      return item;
    }),
  );
  watch(found.states, found.first);
}

// ---- Array --------------------------------------------------------------------------------------

const PARTS = ["activation", "weight", "sum"];
const LISTS = ["activations", "weights", "sums"];
let states = [];
let first = 0;
let cells = [];
let timer = null;

function watch(all, start) {
  [states, first] = [all, start];
  const table = $("elements");
  table.replaceChildren();
  cells = states[0].weights.map((row) => {
    const line = table.insertRow();
    return row.map(() => {
      const cell = line.insertCell();
      cell.append(
        ...PARTS.map((part) => {
          const span = document.createElement("span");
          span.className = part;
          return span;
        }),
      );
      return cell;
    });
  });
  const slider = $("slider");
  slider.max = states.length - 1;
  slider.disabled = false;
  // Where the first activation comes in.
  const begin = states.findIndex((state) => state.activations.flat().some((each) => each));
  go(Math.max(0, begin));
}

function go(step) {
  step = Math.max(0, Math.min(states.length - 1, step));
  const [now, before] = [states[step], states[Math.max(0, step - 1)]];
  $("slider").value = step;
  $("cycle").textContent = first + step;
  cells.forEach((row, k) =>
    row.forEach((cell, c) => {
      const changed = LISTS.map((list) => now[list][k][c] !== before[list][k][c]);
      LISTS.forEach((list, part) => (cell.children[part].textContent = now[list][k][c]));
      cell.classList.toggle("new", changed.some(Boolean));
    }),
  );
}

function stop() {
  clearInterval(timer);
  timer = null;
  $("play").textContent = "Play";
}

function move(by) {
  stop();
  if (states.length) go(Number($("slider").value) + by);
}

$("back").addEventListener("click", () => move(-1));
$("forward").addEventListener("click", () => move(1));
$("slider").addEventListener("input", () => {
  stop();
  go(Number($("slider").value));
});
$("play").addEventListener("click", () => {
  if (timer || !states.length) return stop();
  $("play").textContent = "Pause";
  timer = setInterval(() => {
    const step = Number($("slider").value) + 1;
    if (step < states.length) go(step);
    else stop();
  }, STEP_MS);
});

// ---- Test images --------------------------------------------------------------------------------

async function offerExamples() {
  const examples = await (await fetch("examples")).json();
  $("examples").append(
    ...examples.map((picture, digit) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = digit;
      button.setAttribute("aria-label", `test image of a ${digit}`);
      button.addEventListener("click", () => {
        picture.forEach((count, i) => {
          const level = Math.round((255 * count) / 16);
          context.fillStyle = `rgb(${level} ${level} ${level})`;
          context.fillRect(BLOCK * (i % 8), BLOCK * Math.floor(i / 8), BLOCK, BLOCK);
        });
        classify(picture);
      });
      return button;
    }),
  );
}

clear();
offerExamples();
