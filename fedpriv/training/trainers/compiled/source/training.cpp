// Local training of users, one after the other: all epochs and batches of a user before the next one begins, so that
// its parameters stay in the processor's cache. No user's result depends on another's.
#include <atomic>
#include <memory>
#include <vector>

#include "activations.h"
#include "attention.h"
#include "dense.h"
#include "denormals.h"
#include "dropout.h"
#include "images.h"
#include "losses.h"
#include "pooling.h"
#include "recurrent.h"
#include "sequences.h"
#include "values.h"

extern "C" {

enum LayerSchema : int64_t {
  DENSE, RELU, GROUP_NORM, NORM_OF_RELU, DROPOUT, CONVOLUTION,
  TANH, SIGMOID, SILU, GELU_ERF, GELU_TANH, BLUR, POOL, KEEP, RECALL, ADD_SLOT,
  SEQUENCE, LAST_STEP, MEAN_OF_STEPS, LSTM, GRU, EMBEDDING, POSITIONS, ATTENTION
};
enum LossSchema : int64_t { CROSS_ENTROPY, LOGISTIC };

// A layer of features, or on channels of images (sides 1 x 1: none). flag: whether a Dense or Convolution is biased, a
// GroupNorm affine, a Dropout of probability 1/2, a Pool one of means. number: a Dropout's ordinal, that of the slot
// that is kept or read, how many words an Embedding knows, or an Attention's heads. threshold: a Dropout's. offset: of the parameters in torch's order. steps: of sequences, else 1. real:
// a Dropout's scale, a GroupNorm's epsilon.
struct LayerSpec {
  int64_t schema, flag, number, threshold, offset, steps;
  double real;
  Geometry of;
};

// What all users have in common. features: numbers of a record. start, correction: (size,) in torch's order, correction
// may be null. rows: at once; larger batches are computed in pieces. most: records of a user, at most.
struct Problem {
  const LayerSpec* layers;
  int64_t n_layers, features, size, outputs, loss, epochs, batch, rows, most;
  double lr, proximal;
  const float *start, *correction;
  Names names;
};

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

namespace {

class Trainer {
 public:
  Trainer(const Problem& p, char* memory) : p(p), c{{memory}, p.rows, {}, {}, {}}, n(p.features) {
    slots.resize(p.n_layers);
    for (int64_t i = 0; i < p.n_layers; ++i) {
      if (lowest < 0 && has_parameters(p.layers[i].schema)) lowest = i;
      layers.push_back(made(p.layers[i], lowest == i));
    }
    const int64_t size = c.parameters.size;
    start = c.memory.take<float>(size), weights = c.memory.take<float>(size), gradient = c.memory.take<float>(size);
    correction = c.memory.take<float>(size), x = c.memory.take<float>(p.rows * padded(n) + LANES);
    c.gradients.one = c.memory.take<float>(p.rows * c.gradients.width);
    c.gradients.two = c.memory.take<float>(p.rows * c.gradients.width);
    words.at = c.memory.take<int32_t>(p.rows * words.widest);
    numbers = c.memory.take<uint64_t>(p.most), ends = c.memory.take<int64_t>(p.most + 1);
    order = c.memory.take<int64_t>(p.most);
    if (memory) begin();
  }

  int64_t bytes() const { return c.memory.used; }

  void train(const Users& u, int64_t j, const Loss& loss) {
    const int64_t first = u.starts[u.users[j]], count = u.starts[u.users[j] + 1] - first;
    std::copy_n(start, c.parameters.size, weights);
    c.moment.key = u.dropout[j];
    for (c.moment.epoch = 0; c.moment.epoch < p.epochs; ++c.moment.epoch) {
      if (count > p.batch) shuffle(branch(u.orders[j], c.moment.epoch), count, numbers, order, ends);
      for (int64_t i = 0; i < count; ++i) order[i] = first + (count > p.batch ? order[i] : i);
      c.moment.place = 0;
      for (int64_t at = 0; at < count; at += p.batch, ++c.moment.place)
        step(u, order + at, std::min(p.batch, count - at), loss);
    }
    float* delta = u.deltas + j * p.size;
    for (int64_t i = 0; i < c.parameters.size; ++i) weights[i] -= start[i];
    for (int64_t i = 0; i < p.n_layers; ++i) {
      float* to = delta + p.layers[i].offset;
      layers[i]->unpack(weights, to);
    }
  }

 private:
  static bool has_parameters(int64_t schema) {
    return schema == DENSE || schema == GROUP_NORM || schema == NORM_OF_RELU || schema == CONVOLUTION ||
           schema == LSTM || schema == GRU || schema == EMBEDDING || schema == POSITIONS;
  }

  std::unique_ptr<Layer> made(const LayerSpec& s, bool lowest) {
    const int64_t n = s.of.inputs, steps = s.steps;
    switch (s.schema) {
      case SEQUENCE: return std::make_unique<Sequence>(c, n, steps);
      case LAST_STEP: return std::make_unique<OneStep>(c, n, steps, false);
      case MEAN_OF_STEPS: return std::make_unique<OneStep>(c, n, steps, true);
      case LSTM: return std::make_unique<Lstm>(c, n, s.of.outputs, steps, s.flag, lowest);
      case EMBEDDING: return std::make_unique<Embedding>(c, s.number, s.of.outputs, steps);
      case POSITIONS: return std::make_unique<Positions>(c, n, steps);
      case ATTENTION: return std::make_unique<Attention>(c, s.of.outputs, s.number, steps);
      case GRU: return std::make_unique<Gru>(c, n, s.of.outputs, steps, s.flag, lowest);
    }
    if (steps == 1) return of_rows(s, lowest);
    c.rows *= steps, c.gradients.steps = steps;
    auto layer = of_rows(s, lowest);
    c.rows /= steps, c.gradients.steps = 1;
    return std::make_unique<EveryStep>(std::move(layer), steps);
  }

  std::unique_ptr<Layer> of_rows(const LayerSpec& s, bool lowest) {
    const int64_t n = s.of.inputs, pixels = s.of.sides.pixels();
    switch (s.schema) {
      case DENSE: return std::make_unique<Dense>(c, n, s.of.outputs, s.flag, lowest);
      case RELU: return std::make_unique<ReLU>(c, padded(n * pixels));
      case GROUP_NORM: return group_norm<false>(c, n, float(s.real), s.flag);
      case NORM_OF_RELU: return group_norm<true>(c, n, float(s.real), s.flag);
      case CONVOLUTION: return std::make_unique<Convolution>(c, s.of, s.flag, lowest);
      case TANH: return std::make_unique<Activation<Tanh>>(c, padded(n * pixels));
      case SIGMOID: return std::make_unique<Activation<Sigmoid>>(c, padded(n * pixels));
      case SILU: return std::make_unique<Activation<SiLU>>(c, padded(n * pixels));
      case GELU_ERF: return std::make_unique<Activation<GELU>>(c, padded(n * pixels));
      case GELU_TANH: return std::make_unique<Activation<GELUByTanh>>(c, padded(n * pixels));
      case BLUR: return std::make_unique<Blur>(c, s.of);
      case POOL: return std::make_unique<Pool>(c, s.of, s.flag);
      case KEEP: return std::make_unique<Keep>(c, slots[s.number], padded(n * pixels));
      case RECALL: return std::make_unique<Recall>(c, slots[s.number]);
      case ADD_SLOT: return std::make_unique<AddSlot>(c, slots[s.number]);
      default:
        return std::make_unique<Dropout>(c, words, p.names, s.number, n, pixels, s.flag, int32_t(s.threshold),
                                         float(s.real));
    }
  }

  void begin() {
    std::fill_n(x, p.rows * padded(n) + LANES, 0.0f);
    std::fill_n(start, c.parameters.size, 0.0f);
    std::fill_n(correction, c.parameters.size, 0.0f);
    for (int64_t i = 0; i < p.n_layers; ++i) {
      const float *from = p.start + p.layers[i].offset, *also = p.correction + (p.correction ? p.layers[i].offset : 0);
      layers[i]->pack(from, start);
      if (p.correction) layers[i]->pack(also, correction);
    }
    c.parameters.weights = weights;
  }

  // A batch of plain SGD that fits is one descent of the parameters themselves; others gather their gradient first.
  void step(const Users& u, const int64_t* rows_of, int64_t rows, const Loss& loss) {
    const bool plain = !p.correction && p.proximal == 0 && rows <= p.rows;
    c.parameters.target = plain ? weights : gradient;
    const float weight = (plain ? float(-p.lr) : 1) / float(rows);
    if (!plain) std::fill_n(gradient, c.parameters.size, 0.0f);
    for (c.moment.row = 0; c.moment.row < rows; c.moment.row += p.rows)
      add_gradients(u, rows_of + c.moment.row, std::min(p.rows, rows - c.moment.row), weight, loss);
    if (!plain) descend();
  }

  void add_gradients(const Users& u, const int64_t* rows_of, int64_t rows, float weight, const Loss& loss) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(u.x + rows_of[r] * n, n, x + r * padded(n));
    float* z = x;
    for (const auto& layer : layers) z = layer->forward(z, rows);
    float* g = c.gradients.one;
    loss.gradient(z, rows_of, rows, weight, g);
    for (int64_t i = p.n_layers; i-- > lowest;) g = layers[i]->backward(g, rows);
  }

  // w -= lr (g + correction + mu (w - start))
  void descend() {
    const float lr = float(p.lr), mu = float(p.proximal);
    for (int64_t i = 0; i < c.parameters.size; i += LANES) {
      vec g = load(gradient + i), w = load(weights + i);
      if (mu != 0) g += mu * (w - load(start + i));
      store(weights + i, w - lr * (g + load(correction + i)));
    }
  }

  const Problem& p;
  Context c;
  Words words;
  const int64_t n;
  std::vector<Slot> slots;
  std::vector<std::unique_ptr<Layer>> layers;
  int64_t lowest = -1;  // layer with parameters: below it nobody needs a gradient
  float *start, *weights, *gradient, *correction, *x;
  uint64_t* numbers;
  int64_t *ends, *order;
};

}  // namespace

extern "C" {

// Bytes of memory that `train` needs.
int64_t workspace(const Problem* p) { return Trainer(*p, nullptr).bytes(); }

// Trains users that no other call has taken, until there are none. memory: as many bytes as `workspace` says, at the
// start of a cache line, not shared with another call.
void train(const Problem* p, const Users* u, char* memory) {
  const DenormalsAreZero here;
  Trainer trainer(*p, memory);
  const CrossEntropy cross_entropy(u->y, p->outputs);
  const Logistic logistic(u->y);
  const Loss& loss = p->loss == LOGISTIC ? static_cast<const Loss&>(logistic) : cross_entropy;
  for (int64_t j; (j = (*u->next)++) < u->k;) trainer.train(*u, j, loss);
}

// What tests compare with numpy's.
void draw(uint64_t key, uint64_t name, int64_t row, int64_t rows, int64_t features, int32_t* words) {
  draw_words(key, name, row, rows, features, words);
}

void order(uint64_t key, int64_t n, uint64_t* numbers, int64_t* places, int64_t* ends) {
  shuffle(key, n, numbers, places, ends);
}

int64_t lanes() { return LANES; }
}
