// What networks do that are no chains: a value that several layers read, or a later one.
#pragma once
#include <algorithm>

#include "network.h"

// A value and its gradient, from the layer that keeps it to those that read it.
struct Slot {
  int64_t n = 0;
  float *value = nullptr, *gradient = nullptr;
};

// Keeps what it reads. Its gradient is that of the next layer and those of all others that read the slot.
class Keep final : public Layer {
 public:
  Keep(Context& c, Slot& slot, int64_t numbers) : slot(slot) {
    slot = {numbers, c.memory.take<float>(c.rows * numbers), c.memory.take<float>(c.rows * numbers)};
    c.gradients.need(numbers);
  }

  float* forward(float* x, int64_t rows) override {
    std::copy_n(x, rows * slot.n, slot.value);
    std::fill_n(slot.gradient, rows * slot.n, 0.0f);
    return x;
  }

  float* backward(float* g, int64_t rows) override {
    for (int64_t i = 0; i < rows * slot.n; i += LANES) store(g + i, load(g + i) + load(slot.gradient + i));
    return g;
  }

 private:
  Slot& slot;
};

// Reads a slot, whatever came before it, which gets no gradient from here.
class Recall final : public Layer {
 public:
  Recall(Context& c, Slot& slot)
      : c(c), slot(slot), records(c.rows / c.gradients.steps), y(c.memory.take<float>(c.rows * slot.n + LANES)) {}

  float* forward(float*, int64_t rows) override {
    std::copy_n(slot.value, rows * slot.n, y);
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    for (int64_t i = 0; i < rows * slot.n; i += LANES) store(slot.gradient + i, load(slot.gradient + i) + load(g + i));
    std::fill_n(g, records * c.gradients.width, 0.0f);
    return g;
  }

 private:
  Context& c;
  Slot& slot;
  const int64_t records;  // at once, at most
  float* y;
};

// The sum of what it reads and a slot.
class AddSlot final : public Layer {
 public:
  AddSlot(Context& c, Slot& slot) : slot(slot), y(c.memory.take<float>(c.rows * slot.n + LANES)) {}

  float* forward(float* x, int64_t rows) override {
    for (int64_t i = 0; i < rows * slot.n; i += LANES) store(y + i, load(x + i) + load(slot.value + i));
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    for (int64_t i = 0; i < rows * slot.n; i += LANES) store(slot.gradient + i, load(slot.gradient + i) + load(g + i));
    return g;
  }

 private:
  Slot& slot;
  float* y;
};
