// Recurrent layers on sequences, one layer in one direction, from a state of zeros. Gates lie side by side, whole
// vectors each. Weights are kept transposed, as in Dense.
#pragma once
#include "activations.h"
#include "products.h"

inline vec sigmoid_of(vec x) { return 1 / (1 + exponential(-x)); }

// What both kinds share: parameters, the products over all steps at once, and those from step to step.
// GATES: 4 of an LSTM (input, forget, cell, output), 3 of a GRU (reset, update, new).
template <int GATES>
class Recurrent : public Layer {
 public:
  Recurrent(Context& c, int64_t inputs, int64_t states, int64_t steps, bool biased, bool lowest)
      : c(c), n(inputs), m(states), steps(steps), x_row(padded(n)), row(padded(m)), gates(GATES * row),
        biased(biased), lowest(lowest), w_x(c.parameters.place(x_row * gates)), w_h(c.parameters.place(row * gates)),
        b_x(c.parameters.place(gates)), b_h(c.parameters.place(gates)), bias(c.memory.take<float>(gates)),
        of_x(take(gates)), y(take(row)), before(take(row)), d_x(take(gates)), d_h(GATES == 3 ? take(gates) : d_x),
        turned_x(c.memory.take<float>(gates * x_row)), turned_h(c.memory.take<float>(gates * row)),
        d_state(c.memory.take<float>(c.rows * row)) {
    c.gradients.need(steps * std::max(x_row, row));
  }

  float* forward(float* input, int64_t rows) final {
    x = input;
    const float* w = c.parameters.weights;
    for (int64_t i = 0; i < gates; i += LANES)
      store(bias + i, load(w + b_x + i) + (GATES == 4 ? load(w + b_h + i) : vec{}));
    product(Plain{x, x_row}, rows * steps, n, w + w_x, gates, gates, of_x, gates, SetPlus{bias});
    for (int64_t t = 0; t < steps; ++t) {
      for (int64_t r = 0; r < rows; ++r) {
        float* to = before + (r * steps + t) * row;
        t ? std::copy_n(to - row + (y - before), row, to) : std::fill_n(to, row, 0.0f);
      }
      step(t, rows);
    }
    return y;
  }

  float* backward(float* g, int64_t rows) final {
    float *below = c.gradients.other(g), *target = c.parameters.target;
    const float* w = c.parameters.weights;
    transpose(w + w_h, m, gates, turned_h);
    std::fill_n(d_state, rows * row, 0.0f);
    for (int64_t t = steps; t-- > 0;) {
      step_back(t, rows, g);
      if (t) product(Plain{d_h + t * gates, steps * gates}, rows, gates, turned_h, row, row, d_state, row, Add{});
    }
    if (!lowest) {
      transpose(w + w_x, n, gates, turned_x);
      product(Plain{d_x, gates}, rows * steps, gates, turned_x, x_row, x_row, below, x_row, Set{});
    }
    product(Transposed{x, x_row}, n, rows * steps, d_x, gates, gates, target + w_x, gates, Add{});
    product(Transposed{before, row}, m, rows * steps, d_h, gates, gates, target + w_h, gates, Add{});
    if (!biased) return below;
    add_rows(d_x, rows * steps, gates, target + b_x);
    add_rows(d_h, rows * steps, gates, target + b_h);
    return below;
  }

  void unpack(const float* own, float*& flat) const final {
    for (const auto& [start, inputs] : {std::pair{w_x, n}, std::pair{w_h, m}})
      for (int64_t gate = 0; gate < GATES; ++gate)
        for (int64_t o = 0; o < m; ++o)
          for (int64_t i = 0; i < inputs; ++i) *flat++ = own[start + i * gates + gate * row + o];
    for (int64_t start : {b_x, b_h})
      for (int64_t gate = 0; biased && gate < GATES; ++gate)
        flat = std::copy_n(own + start + gate * row, m, flat);
  }

 protected:
  // y of step t, from of_x and the states before.
  virtual void step(int64_t t, int64_t rows) = 0;
  // d_x and d_h of step t, and in d_state what the state before gets without the product with the weights.
  virtual void step_back(int64_t t, int64_t rows, const float* g) = 0;

  float* take(int64_t width) { return c.memory.take<float>(c.rows * steps * width + LANES); }

  // Numbers of the states before step t times their weights.
  template <class Put>
  void product_of_states(int64_t t, int64_t rows, float* to, int64_t to_row, Put put) const {
    product(Plain{before + t * row, steps * row}, rows, m, c.parameters.weights + w_h, gates, gates, to, to_row, put);
  }

  Context& c;
  const int64_t n, m, steps, x_row, row, gates;
  const bool biased, lowest;
  const int64_t w_x, w_h, b_x, b_h;
  float *x = nullptr, *bias;
  float *of_x, *y, *before, *d_x, *d_h;  // of all steps
  float *turned_x, *turned_h, *d_state;
};

class Lstm final : public Recurrent<4> {
 public:
  Lstm(Context& c, int64_t inputs, int64_t states, int64_t steps, bool biased, bool lowest)
      : Recurrent(c, inputs, states, steps, biased, lowest), cells(take(row)), bent(take(row)),
        d_cell(c.memory.take<float>(c.rows * row)) {}

 private:
  void step(int64_t t, int64_t rows) override {
    if (t) product_of_states(t, rows, of_x + t * gates, steps * gates, Add{});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < row; j += LANES) {
        const int64_t at = (r * steps + t) * row + j;
        float* gate = of_x + (r * steps + t) * gates + j;
        const vec in = sigmoid_of(load(gate)), forget = sigmoid_of(load(gate + row));
        const vec fresh = tanh_of(load(gate + 2 * row)), out = sigmoid_of(load(gate + 3 * row));
        const vec cell = in * fresh + (t ? forget * load(cells + at - row) : vec{}), curve = tanh_of(cell);
        store(gate, in), store(gate + row, forget), store(gate + 2 * row, fresh), store(gate + 3 * row, out);
        store(cells + at, cell), store(bent + at, curve), store(y + at, out * curve);
      }
  }

  void step_back(int64_t t, int64_t rows, const float* g) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < row; j += LANES) {
        const int64_t at = (r * steps + t) * row + j, own = r * row + j;
        const float* gate = of_x + (r * steps + t) * gates + j;
        float* d = d_x + (r * steps + t) * gates + j;
        const vec in = load(gate), forget = load(gate + row), fresh = load(gate + 2 * row), out = load(gate + 3 * row);
        const vec d_y = load(g + at) + load(d_state + own), curve = load(bent + at);
        const vec above = t + 1 < steps ? load(d_cell + own) : vec{};
        const vec d_c = above + d_y * out * (1 - curve * curve);
        store(d, d_c * fresh * in * (1 - in));
        store(d + row, t ? d_c * load(cells + at - row) * forget * (1 - forget) : vec{});
        store(d + 2 * row, d_c * in * (1 - fresh * fresh));
        store(d + 3 * row, d_y * curve * out * (1 - out));
        store(d_cell + own, d_c * forget);
        store(d_state + own, vec{});
      }
  }

  float *cells, *bent, *d_cell;
};

class Gru final : public Recurrent<3> {
 public:
  Gru(Context& c, int64_t inputs, int64_t states, int64_t steps, bool biased, bool lowest)
      : Recurrent(c, inputs, states, steps, biased, lowest), of_h(take(gates)) {}

 private:
  void step(int64_t t, int64_t rows) override {
    product_of_states(t, rows, of_h + t * gates, steps * gates, SetPlus{c.parameters.weights + b_h});
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < row; j += LANES) {
        const int64_t at = (r * steps + t) * row + j, first = (r * steps + t) * gates + j;
        float *own = of_x + first, *state = of_h + first;
        const vec reset = sigmoid_of(load(own) + load(state));
        const vec update = sigmoid_of(load(own + row) + load(state + row));
        const vec fresh = tanh_of(load(own + 2 * row) + reset * load(state + 2 * row));
        store(own, reset), store(own + row, update), store(own + 2 * row, fresh);
        store(y + at, fresh + update * (load(before + at) - fresh));
      }
  }

  void step_back(int64_t t, int64_t rows, const float* g) override {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < row; j += LANES) {
        const int64_t at = (r * steps + t) * row + j, first = (r * steps + t) * gates + j, own = r * row + j;
        const vec reset = load(of_x + first), update = load(of_x + first + row), fresh = load(of_x + first + 2 * row);
        const vec d_y = load(g + at) + load(d_state + own);
        const vec d_fresh = d_y * (1 - update) * (1 - fresh * fresh);
        const vec d_reset = d_fresh * load(of_h + first + 2 * row) * reset * (1 - reset);
        const vec d_update = d_y * (load(before + at) - fresh) * update * (1 - update);
        for (float* d : {d_x, d_h}) store(d + first, d_reset), store(d + first + row, d_update);
        store(d_x + first + 2 * row, d_fresh), store(d_h + first + 2 * row, d_fresh * reset);
        store(d_state + own, d_y * update);
      }
  }

  float* of_h;
};
