// Means and maxima over windows of images, where a convolution does not compute them itself.
#pragma once
#include <algorithm>

#include "planes.h"

// The means over windows that begin at every pixel and whose pixels are `stride` apart, of images with zeros around.
// A convolution with means of its results over windows side by side is one of these means, with a longer step.
class Blur final : public Layer {
 public:
  Blur(Context& c, const Geometry& g)
      : c(c), n(g.inputs), sides(g.sides), zeros(g.zeros), window(g.window), stride(g.stride), around(g.around()),
        out{around.height - (window.height - 1) * stride.height, around.width - (window.width - 1) * stride.width},
        share(1 / float(window.pixels())), x_row(padded(n * sides.pixels())), y_row(padded(n * out.pixels())),
        y(c.memory.take<float>(c.rows * y_row + LANES)), frame(c.memory.take<float>(around.pixels() + LANES)) {
    c.gradients.need(std::max(x_row, y_row) + LANES);
    if (!y) return;
    std::fill_n(y, c.rows * y_row + LANES, 0.0f);
    std::fill_n(frame, around.pixels() + LANES, 0.0f);
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < n; ++k) {
        for (int64_t i = 0; i < sides.height; ++i)
          std::copy_n(x + r * x_row + (k * sides.height + i) * sides.width, sides.width, pixel(i));
        for (int64_t i = 0; i < out.height; ++i) {
          float* to = y + r * y_row + (k * out.height + i) * out.width;
          std::fill_n(to, out.width, 0.0f);
          each(i, [&](const float* from) {
            for (int64_t j = 0; j < out.width; ++j) to[j] += from[j];
          });
          for (int64_t j = 0; j < out.width; ++j) to[j] *= share;
        }
      }
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < n; ++k) {
        std::fill_n(frame, around.pixels(), 0.0f);
        for (int64_t i = 0; i < out.height; ++i) {
          const float* from = g + r * y_row + (k * out.height + i) * out.width;
          each(i, [&](float* to) {
            for (int64_t j = 0; j < out.width; ++j) to[j] += from[j] * share;
          });
        }
        for (int64_t i = 0; i < sides.height; ++i)
          std::copy_n(pixel(i), sides.width, below + r * x_row + (k * sides.height + i) * sides.width);
      }
    clear_frame();
    c.gradients.clear_padding(below, rows, n * sides.pixels());
    return below;
  }

 private:
  float* pixel(int64_t line) const { return frame + (line + zeros.height) * around.width + zeros.width; }

  // use(row of the frame) for each of the window's pixels, in line i.
  template <class Use>
  void each(int64_t i, Use use) const {
    for (int64_t a = 0; a < window.height; ++a)
      for (int64_t b = 0; b < window.width; ++b)
        use(frame + (i + a * stride.height) * around.width + b * stride.width);
  }

  void clear_frame() const { std::fill_n(frame, around.pixels(), 0.0f); }

  Context& c;
  const int64_t n;
  const Sides sides, zeros, window, stride, around, out;
  const float share;
  const int64_t x_row, y_row;
  float *y, *frame;
};

// The mean or the maximum of each window, `stride` apart. Of equal numbers the first is the maximum, of NaN the last.
class Pool final : public Layer {
 public:
  Pool(Context& c, const Geometry& g, bool mean)
      : c(c), n(g.inputs), sides(g.sides), window(g.window), stride(g.stride),
        out{(sides.height - window.height) / stride.height + 1, (sides.width - window.width) / stride.width + 1},
        mean(mean), share(1 / float(window.pixels())), x_row(padded(n * sides.pixels())),
        y_row(padded(n * out.pixels())), y(c.memory.take<float>(c.rows * y_row + LANES)),
        chosen(c.memory.take<int32_t>(c.rows * y_row)) {
    c.gradients.need(std::max(x_row, y_row));
    if (y) std::fill_n(y, c.rows * y_row + LANES, 0.0f);
  }

  float* forward(float* x, int64_t rows) override {
    each(rows, [&](int64_t from, int64_t to) {
      if (mean) {
        float sum = 0;
        pixels(from, [&](int64_t at) { sum += x[at]; });
        y[to] = sum * share;
      } else {
        int64_t best = from;
        pixels(from, [&](int64_t at) {
          if (x[at] > x[best] || x[at] != x[at]) best = at;
        });
        y[to] = x[best], chosen[to] = int32_t(best);
      }
    });
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    std::fill_n(below, rows * x_row, 0.0f);
    each(rows, [&](int64_t from, int64_t to) {
      if (mean)
        pixels(from, [&](int64_t at) { below[at] += g[to] * share; });
      else
        below[chosen[to]] += g[to];
    });
    return below;
  }

 private:
  // use(first pixel of the window, its result), both in the batch's numbers.
  template <class Use>
  void each(int64_t rows, Use use) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < out.height; ++i)
          for (int64_t j = 0; j < out.width; ++j)
            use(r * x_row + (k * sides.height + i * stride.height) * sides.width + j * stride.width,
                r * y_row + (k * out.height + i) * out.width + j);
  }

  template <class Use>
  void pixels(int64_t from, Use use) const {
    for (int64_t a = 0; a < window.height; ++a)
      for (int64_t b = 0; b < window.width; ++b) use(from + a * sides.width + b);
  }

  Context& c;
  const int64_t n;
  const Sides sides, window, stride, out;
  const bool mean;
  const float share;
  const int64_t x_row, y_row;
  float* y;
  int32_t* chosen;
};
