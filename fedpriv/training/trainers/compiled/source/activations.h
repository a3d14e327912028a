// Functions of single numbers.
#pragma once
#include "network.h"

// A function's value and its derivative.
struct Curve {
  vec value, slope;
};

// tanh x, from x for small x, so that none of its digits cancel: Lambert's continued fraction, cut where its error is
// below a float's.
inline vec tanh_of(vec x) {
  const vec square = x * x;
  const vec near = x * (945 + square * (105 + square)) / (945 + square * (420 + square * 15));
  const vec far = 1 - 2 / (1 + exponential(2 * x));
  return square < broadcast(0.25f) ? near : far;
}

struct Tanh {
  static Curve at(vec x) {
    const vec y = tanh_of(x);
    return {y, 1 - y * y};
  }
};

struct Sigmoid {
  static Curve at(vec x) {
    const vec y = 1 / (1 + exponential(-x));
    return {y, y * (1 - y)};
  }
};

struct SiLU {
  static Curve at(vec x) {
    const vec s = 1 / (1 + exponential(-x));
    return {x * s, s * (1 + x * (1 - s))};
  }
};

// x times the normal distribution function. Its tail is e^(-x^2 / 2) times a polynomial of 1 / (1 + p |x|): Abramowitz
// and Stegun, 7.1.26, within 1.5e-7.
struct GELU {
  static Curve at(vec x) {
    const vec size = x < vec{} ? -x : x;
    const vec bell = exponential(-0.5f * x * x);
    const vec t = 1 / (1 + 0.3275911f * 0.70710678f * size);
    vec series = broadcast(1.061405429f);
    for (float next : {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f}) series = series * t + next;
    const vec tail = 0.5f * series * t * bell;
    const vec below = x < vec{} ? tail : 1 - tail;
    return {x * below, below + 0.39894228f * x * bell};
  }
};

// Hendrycks and Gimpel's approximation of it by tanh.
struct GELUByTanh {
  static Curve at(vec x) {
    constexpr float scale = 0.79788456f, cubic = 0.044715f;
    const vec square = x * x, t = tanh_of(scale * x * (1 + cubic * square));
    const vec half = 0.5f * (1 + t);
    return {x * half, half + 0.5f * x * (1 - t * t) * scale * (1 + 3 * cubic * square)};
  }
};

template <class Function>
class Activation final : public Layer {
 public:
  Activation(Context& c, int64_t numbers)
      : n(numbers), y(c.memory.take<float>(c.rows * n + LANES)), slopes(c.memory.take<float>(c.rows * n)) {
    c.gradients.need(n);
  }

  float* forward(float* x, int64_t rows) override {
    for (int64_t i = 0; i < rows * n; i += LANES) {
      const Curve found = Function::at(load(x + i));
      store(y + i, found.value);
      store(slopes + i, found.slope);
    }
    return y;
  }

  float* backward(float* g, int64_t rows) override {
    for (int64_t i = 0; i < rows * n; i += LANES) store(g + i, load(g + i) * load(slopes + i));
    return g;
  }

 private:
  const int64_t n;
  float *y, *slopes;
};
