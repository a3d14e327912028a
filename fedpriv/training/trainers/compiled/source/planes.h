// What a convolution multiplies with its weights, and the maxima of the products.
#pragma once
#include "network.h"
#include "tiles.h"

struct Sides {
  int64_t height, width;
  int64_t pixels() const { return height * width; }
  friend Sides operator*(Sides a, Sides b) { return {a.height * b.height, a.width * b.width}; }
};

// Of a convolution, and of the maxima over windows of its results. sides, zeros: of what it reads, and around that.
struct Geometry {
  int64_t inputs, outputs;
  Sides sides, kernel, stride, zeros, window;
  Sides around() const { return {sides.height + 2 * zeros.height, sides.width + 2 * zeros.width}; }
  Sides step() const { return stride * window; }  // from a maximum to the next, in x
  Sides out() const {
    return {((around().height - kernel.height) / stride.height + 1) / window.height,
            ((around().width - kernel.width) / stride.width + 1) / window.width};
  }
};

// One image, laid out so that the lanes of a vector are neighbouring maxima, for one place of the window (a phase) and
// one of the kernel: planes (shift, channel, remainder, line, column) hold x[channel] at row line * step + remainder
// and at column column * step + shift. All lanes are used, and every load is of consecutive numbers.
class Planes {
 public:
  Planes(Workspace& memory, const Geometry& g)
      : n(g.inputs), sides(g.sides), zeros(g.zeros), around(g.around()), step(g.step()), out(g.out()),
        shifts((g.window.width - 1) * g.stride.width + g.kernel.width),
        lines((around.height + step.height - 1) / step.height), columns((around.width + step.width - 1) / step.width),
        plane(quads((lines - 1) * out.width + quads(out.width))), channel(step.height * plane),
        frame(memory.take<float>(around.height * columns * step.width)), dealt_row(around.height * columns + LANES),
        dealt(memory.take<float>(step.width * dealt_row)),
        planes(memory.take<float>(shifts * n * channel + padded(out.pixels()))) {
    if (!planes) return;
    std::fill_n(frame, around.height * columns * step.width, 0.0f);
    std::fill_n(dealt, step.width * dealt_row, 0.0f);
    std::fill_n(planes, shifts * n * channel + padded(out.pixels()), 0.0f);
  }

  void fill(const float* x) const {
    for (int64_t k = 0; k < n; ++k, x += sides.pixels()) {
      deal(x);
      for (int64_t shift = 0; shift < shifts; ++shift)
        for (int64_t rest = 0; rest < step.height; ++rest) {
          const float* from = dealt + shift % step.width * dealt_row + shift / step.width + rest * columns;
          float* to = planes + (shift * n + k) * channel + rest * plane;
          for (int64_t i = rest; i < around.height; i += step.height, from += step.height * columns, to += out.width)
            for (int64_t j = 0; j < out.width; j += QUAD) std::memcpy(to + j, from + j, sizeof(float) * QUAD);
        }
    }
  }

  // Of what the first number of the patch's row `line` is multiplied with, at the given place of the window; the
  // others' follow, `channel` apart.
  const float* row(int64_t line, int64_t shift) const {
    return planes + shift * n * channel + line % step.height * plane + line / step.height * out.width;
  }

 private:
  static constexpr int64_t QUAD = 4;  // numbers that are copied at once: lines are too short for a call
  static int64_t quads(int64_t n) { return (n + QUAD - 1) / QUAD * QUAD; }

  // dealt (step.width, lines and columns of an image): the columns of a channel, with zeros around it, in turn.
  void deal(const float* x) const {
    const int64_t width = columns * step.width;
    if (width != sides.width || zeros.height) {
      for (int64_t i = 0; i < sides.height; ++i)
        std::copy_n(x + i * sides.width, sides.width, frame + (i + zeros.height) * width + zeros.width);
      x = frame;
    }
    step.width == 2 ? deal(x, 2) : deal(x, step.width);  // a constant becomes shuffles of vectors
  }

  inline __attribute__((always_inline)) void deal(const float* x, int64_t ways) const {
    for (int64_t i = 0; i < around.height * columns; ++i)
      for (int64_t way = 0; way < ways; ++way) dealt[way * dealt_row + i] = x[i * ways + way];
  }

  const int64_t n;
  const Sides sides, zeros, around, step, out;
  const int64_t shifts, lines, columns, plane;

 public:
  const int64_t channel;

 private:
  float* frame;
  const int64_t dealt_row;
  float *dealt, *planes;
};
