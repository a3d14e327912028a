// The layers of a network, made from their descriptions, and its gradients for rows of records.
#pragma once
#include <memory>
#include <vector>

#include "activations.h"
#include "attention.h"
#include "dense.h"
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
  SEQUENCE, LAST_STEP, MEAN_OF_STEPS, LSTM, GRU, EMBEDDING, POSITIONS, ATTENTION, MASK
};
enum LossSchema : int64_t { CROSS_ENTROPY, LOGISTIC, SQUARED, SURVIVAL, COX };

// A layer of features, or on channels of images (sides 1 x 1: none). flag: whether a Dense or Convolution is biased, a
// GroupNorm affine, a Dropout of probability 1/2, a Pool one of means; the coins of a Mask in a row. number: the
// ordinal of a Dropout or Mask, that of the slot that is kept or read, how many words an Embedding knows, or an
// Attention's heads. threshold: a Dropout's or Mask's. offset: of the parameters in torch's order. steps: of sequences,
// else 1. real: the scale of a Dropout or Mask, a GroupNorm's epsilon.
struct LayerSpec {
  int64_t schema, flag, number, threshold, offset, steps;
  double real;
  Geometry of;
};

// What all users, or all records, have in common. features: numbers of a record. start, correction: of the parameters,
// in the layers' order; correction may be null. real: 1 of each parameter there; 0: padding. places: of all `size`
// parameters of torch's order in that of the layers. factors: of the classes' records; null: 1 each. rows: at once;
// larger batches are computed in pieces. most: records of a user, at most.
struct Problem {
  const LayerSpec* layers;
  int64_t n_layers, features, size, outputs, loss, epochs, batch, rows, most;
  double lr, proximal;
  const float *start, *correction, *real;
  const int32_t* places;
  const float* factors;
  Names names;
};

}  // extern "C"

class Chain {
 public:
  // apart: see `Parameters`.
  Chain(const Problem& p, char* memory, bool apart) : p(p), c{{memory}, p.rows, {}, {}, {}}, n(p.features) {
    c.parameters.apart = apart;
    slots.resize(p.n_layers);
    for (int64_t i = 0; i < p.n_layers; ++i) {
      if (lowest < 0 && has_parameters(p.layers[i].schema)) lowest = i;
      layers.push_back(made(p.layers[i], lowest == i));
      ends.push_back(c.parameters.size);
    }
    x = c.memory.take<float>(p.rows * padded(n) + LANES);
    c.gradients.one = c.memory.take<float>(p.rows * c.gradients.width);
    c.gradients.two = c.memory.take<float>(p.rows * c.gradients.width);
    words.at = c.memory.take<int32_t>(p.rows * words.widest);
    if (memory) std::fill_n(x, p.rows * padded(n) + LANES, 0.0f);
  }

  int64_t bytes() const { return c.memory.used; }

  // Where the layers have each parameter of torch's order, among so many numbers: what becomes of the bits of places.
  int64_t find_places(int32_t* places) const {
    std::vector<float> own(c.parameters.size), flat(p.size);
    for (int32_t i = 0; i < c.parameters.size; ++i) std::memcpy(&own[i], &i, sizeof i);
    unpack(own.data(), flat.data());
    std::memcpy(places, flat.data(), p.size * sizeof *places);
    return c.parameters.size;
  }

 protected:
  // Parameters in torch's order (size,).
  void unpack(const float* own, float* flat) const {
    for (int64_t i = 0; i < p.n_layers; ++i) {
      float* to = flat + p.layers[i].offset;
      layers[i]->unpack(own, to);
    }
  }

  // Adds `weight` times the gradients of the losses of rows_of of the records to the target.
  void add_gradients(const float* records, const int64_t* rows_of, int64_t rows, float weight, const Loss& loss) {
    for (int64_t r = 0; r < rows; ++r) std::copy_n(records + rows_of[r] * n, n, x + r * padded(n));
    float* z = x;
    for (const auto& layer : layers) z = layer->forward(z, rows);
    float* g = c.gradients.one;
    loss.gradient(z, rows_of, rows, weight, g);
    for (int64_t i = p.n_layers; i-- > lowest;) g = layers[i]->backward(g, rows);
  }

  const Problem& p;
  Context c;
  std::vector<std::unique_ptr<Layer>> layers;
  std::vector<int64_t> ends;  // of each layer's parameters

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
      case MASK: return std::make_unique<Mask>(c, s.number, s.flag, n * pixels, int32_t(s.threshold), float(s.real));
      default:
        return std::make_unique<Dropout>(c, words, p.names, s.number, n, pixels, s.flag, int32_t(s.threshold),
                                         float(s.real));
    }
  }

  Words words;
  const int64_t n;
  std::vector<Slot> slots;
  int64_t lowest = -1;  // layer with parameters: below it nobody needs a gradient
  float* x;
};

// The loss of the problem, for labels (n,) or (n, 2).
inline std::unique_ptr<Loss> loss_of(const Problem& p, const void* labels) {
  switch (p.loss) {
    case LOGISTIC: return std::make_unique<OneOutput<logistic>>(labels);
    case SQUARED: return std::make_unique<OneOutput<squared>>(labels);
    case SURVIVAL: return std::make_unique<OneOutput<survival, 2>>(labels);
    case COX: return std::make_unique<Cox>(labels);
    default: return std::make_unique<CrossEntropy>(labels, p.outputs, p.factors);
  }
}
