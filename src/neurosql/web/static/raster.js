/**
 * Tens of thousands of dots in a few milliseconds, without a graphics card: they are written to the pixels directly.
 */

/** Pixels of a canvas that dots are drawn to. */
export class Raster {
  constructor() {
    this.width = this.height = 0;
  }

  /** Begin with nothing. */
  begin(width, height) {
    if (width !== this.width || height !== this.height) {
      this.image = new ImageData(width, height);
      this.words = new Uint32Array(this.image.data.buffer);
      [this.width, this.height] = [width, height];
    }
    this.words.fill(0);
  }

  /** A round dot in one colour, with soft edges; `stamp` is that of its radius. */
  dot(x, y, colour, stamp) {
    const { size, cover } = stamp;
    const left = Math.round(x - size / 2), top = Math.round(y - size / 2);
    if (left >= this.width || top >= this.height || left + size <= 0 || top + size <= 0) return;
    const inside = left >= 0 && top >= 0 && left + size <= this.width && top + size <= this.height;
    const { words, width } = this;
    for (let row = 0, k = 0; row < size; row++) {
      if (!inside && (top + row < 0 || top + row >= this.height)) {
        k += size;
        continue;
      }
      let at = (top + row) * width + left;
      for (let column = 0; column < size; column++, k++, at++) {
        const share = cover[k];
        if (!share || (!inside && (left + column < 0 || left + column >= width))) continue;
        words[at] = share === 255 ? colour : blended(words[at], colour, share);
      }
    }
  }

  /** Put the pixels on a canvas of the same size. */
  end(context) {
    context.putImageData(this.image, 0, 0);
  }
}

function blended(below, above, share) {
  const there = below >>> 24;
  if (there < 255) return ((Math.min(255, there + share) << 24) | (above & 0xffffff)) >>> 0;
  const rest = 255 - share;
  const red = ((below & 255) * rest + (above & 255) * share) >> 8;
  const green = (((below >> 8) & 255) * rest + ((above >> 8) & 255) * share) >> 8;
  const blue = (((below >> 16) & 255) * rest + ((above >> 16) & 255) * share) >> 8;
  return ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0;
}

const stamps = new Map();

/** How much of each pixel a dot of a radius covers, from 0 to 255. */
export function stampOf(radius) {
  const key = Math.round(radius * 4) / 4;
  if (!stamps.has(key)) {
    const size = Math.max(1, Math.ceil(2 * key + 1)), middle = (size - 1) / 2;
    const cover = new Uint8Array(size * size);
    for (let i = 0; i < cover.length; i++) {
      const distance = Math.hypot((i % size) - middle, Math.floor(i / size) - middle);
      cover[i] = Math.round(255 * Math.min(Math.max(key + 0.5 - distance, 0), 1));
    }
    stamps.set(key, { size, cover });
  }
  return stamps.get(key);
}
