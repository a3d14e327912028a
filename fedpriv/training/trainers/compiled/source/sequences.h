// Layers on sequences: rows of (steps, padded(features)).
#pragma once
#include <algorithm>
#include <memory>

#include "network.h"

// A layer that treats every step alone.
class EveryStep final : public Layer {
 public:
  EveryStep(std::unique_ptr<Layer> layer, int64_t steps) : layer(std::move(layer)), steps(steps) {}
  float* forward(float* x, int64_t rows) override { return layer->forward(x, rows * steps); }
  float* backward(float* g, int64_t rows) override { return layer->backward(g, rows * steps); }
  void unpack(const float* own, float*& flat) const override { layer->unpack(own, flat); }

 private:
  std::unique_ptr<Layer> layer;
  const int64_t steps;
};

// Rows of the records, in which steps lie side by side, as whole vectors a step.
class Sequence final : public Layer {
 public:
  Sequence(Context& c, int64_t features, int64_t steps)
      : n(features), steps(steps), row(padded(n)), x_row(padded(n * steps)),
        y(c.memory.take<float>(c.rows * steps * row + LANES)) {
    c.gradients.need(std::max(x_row, steps * row));
    if (y) std::fill_n(y, c.rows * steps * row + LANES, 0.0f);
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = 0; t < steps; ++t) std::copy_n(x + r * x_row + t * n, n, y + (r * steps + t) * row);
    return y;
  }

  float* backward(float* g, int64_t) override { return g; }  // of records: nobody reads it

 private:
  const int64_t n, steps, row, x_row;
  float* y;
};

// The last step, or the mean of all.
class OneStep final : public Layer {
 public:
  OneStep(Context& c, int64_t features, int64_t steps, bool mean)
      : c(c), steps(steps), row(padded(features)), first(mean ? 0 : steps - 1), share(mean ? 1 / float(steps) : 1),
        y(c.memory.take<float>(c.rows * row + LANES)) {
    c.gradients.need(steps * row);
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < row; j += LANES) {
        vec sum{};
        for (int64_t t = first; t < steps; ++t) sum += load(x + (r * steps + t) * row + j);
        store(y + r * row + j, sum * share);
      }
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    float* below = c.gradients.other(g);
    std::fill_n(below, rows * steps * row, 0.0f);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t t = first; t < steps; ++t)
        for (int64_t j = 0; j < row; j += LANES)
          store(below + (r * steps + t) * row + j, load(g + r * row + j) * share);
    return below;
  }

 private:
  Context& c;
  const int64_t steps, row, first;
  const float share;
  float* y;
};
