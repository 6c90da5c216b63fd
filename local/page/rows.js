// A list that draws only the rows that can be seen: five hundred keys or five thousand records cost the same.

export class Rows {
  #box;
  #space;
  #make;
  #fill;
  #rows = [];
  #count = 0;
  #first = 0;
  #height = 32;
  #seen = 0;
  #asked = false;

  /** `make()` makes a row; `fill(row, index)` makes it show what is at `index`, and should touch only what differs. */
  constructor(box, make, fill) {
    this.#box = box;
    this.#make = make;
    this.#fill = fill;
    this.#space = document.createElement("div");
    this.#space.className = "space";
    box.append(this.#space);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.#measure()).observe(box);
  }

  /** There are so many now. */
  set count(count) {
    if (count !== this.#count) {
      this.#count = count;
      this.#space.style.height = `${count * this.#height}px`;
    }
    this.draw();
  }

  /** Draws what can be seen, in the next frame. */
  draw() {
    if (this.#asked) return;
    this.#asked = true;
    requestAnimationFrame(() => {
      this.#asked = false;
      this.#draw();
    });
  }

  /** Reads the layout here and nowhere else, so that drawing never waits for it. */
  #measure() {
    const height = parseFloat(getComputedStyle(this.#box).getPropertyValue("--row"));
    if (height) this.#height = height;
    this.#seen = Math.ceil(this.#box.clientHeight / this.#height) + 2;
    this.#space.style.height = `${this.#count * this.#height}px`;
    for (const row of this.#rows) row.top = -1;
    this.draw();
  }

  #draw() {
    const wanted = Math.min(this.#seen, this.#count);
    while (this.#rows.length < wanted) {
      const row = { box: this.#make(), top: -1 };
      this.#rows.push(row);
      this.#space.append(row.box);
    }
    while (this.#rows.length > wanted) this.#rows.pop().box.remove();
    const most = Math.max(0, this.#count - wanted);
    this.#first = Math.min(most, Math.max(0, Math.floor(this.#box.scrollTop / this.#height)));
    for (let index = this.#first; index < this.#first + wanted; index++) {
      const row = this.#rows[index % wanted];
      if (row.top !== index) {
        row.top = index;
        row.box.style.transform = `translateY(${index * this.#height}px)`;
      }
      this.#fill(row.box, index);
    }
  }
}
