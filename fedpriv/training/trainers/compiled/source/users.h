// Local training of users, one after the other: all epochs and batches of a user before the next one begins, so that
// its parameters stay in the processor's cache. No user's result depends on another's.
#pragma once
#include <atomic>

#include "layers.h"

extern "C" {

// Users: records x (n, features), y (n,), user i's from starts[i] to starts[i + 1]; k of them train, those at users[j],
// with the keys orders[j] and dropout[j], and leave row j of deltas (k, size). next: the j that nobody has taken yet.
struct Users {
  const float* x;
  const void* y;
  const int64_t *starts, *users;
  const uint64_t *orders, *dropout;
  int64_t k;
  float* deltas;
  std::atomic<int64_t>* next;
};

}  // extern "C"

class Trainer final : public Chain {
 public:
  Trainer(const Problem& p, char* memory) : Chain(p, memory, false) {
    const int64_t size = c.parameters.size;
    weights = c.memory.take<float>(size), gradient = c.memory.take<float>(size);
    numbers = c.memory.take<uint64_t>(p.most), ends = c.memory.take<int64_t>(p.most + 1);
    order = c.memory.take<int64_t>(p.most);
    c.parameters.weights = weights;
  }

  void train(const Users& u, int64_t j, const Loss& loss) {
    const int64_t first = u.starts[u.users[j]], count = u.starts[u.users[j] + 1] - first;
    std::copy_n(p.start, c.parameters.size, weights);
    c.moment.key = u.dropout[j];
    for (c.moment.epoch = 0; c.moment.epoch < p.epochs; ++c.moment.epoch) {
      if (count > p.batch) shuffle(branch(u.orders[j], c.moment.epoch), count, numbers, order, ends);
      for (int64_t i = 0; i < count; ++i) order[i] = first + (count > p.batch ? order[i] : i);
      c.moment.place = 0;
      for (int64_t at = 0; at < count; at += p.batch, ++c.moment.place)
        step(u, order + at, std::min(p.batch, count - at), loss);
    }
    for (int64_t i = 0; i < c.parameters.size; ++i) weights[i] -= p.start[i];
    unpack(weights, u.deltas + j * p.size);
  }

 private:
  // A batch of plain SGD that fits is one descent of the parameters themselves; others gather their gradient first.
  void step(const Users& u, const int64_t* rows_of, int64_t rows, const Loss& loss) {
    const bool plain = !p.correction && p.proximal == 0 && rows <= p.rows;
    c.parameters.target = plain ? weights : gradient;
    const float weight = (plain ? float(-p.lr) : 1) / float(rows);
    if (!plain) std::fill_n(gradient, c.parameters.size, 0.0f);
    for (c.moment.row = 0; c.moment.row < rows; c.moment.row += p.rows)
      add_gradients(u.x, rows_of + c.moment.row, std::min(p.rows, rows - c.moment.row), weight, loss);
    if (!plain) descend();
  }

  // w -= lr (g + correction + mu (w - start))
  void descend() {
    const float lr = float(p.lr), mu = float(p.proximal);
    for (int64_t i = 0; i < c.parameters.size; i += LANES) {
      vec g = load(gradient + i), w = load(weights + i);
      if (mu != 0) g += mu * (w - load(p.start + i));
      store(weights + i, w - lr * (p.correction ? g + load(p.correction + i) : g));
    }
  }

  float *weights, *gradient;
  uint64_t* numbers;
  int64_t *ends, *order;
};
