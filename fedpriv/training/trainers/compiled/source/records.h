// Sums of clipped gradients of records. Each record's gradient is computed alone, so that none of its bits depends on
// the others.
#pragma once
#include <cmath>
#include <limits>

#include "layers.h"

extern "C" {

// Records x (n, features), y (n,) with the keys (n,) of their dropout. keys: null where nothing drops. names: of what each
// Mask draws. A gradient longer than `clip` is scaled down to it, and one that is not finite counts as zero. piece: how
// many are summed before their sum is added to the total. norms: (n,), of the gradients. total: (size,) in torch's order.
struct Records {
  const float* x;
  const void* y;
  const uint64_t *keys, *names;
  int64_t n, piece;
  double clip;
  double *norms, *total;
};

}  // extern "C"

class ClippedSum : public Chain {
 public:
  ClippedSum(const Problem& p, char* memory) : Chain(p, memory, true) {
    const int64_t size = c.parameters.size;
    weights = c.memory.take<float>(size), gradient = c.memory.take<float>(size);
    piece = c.memory.take<double>(size), sum = c.memory.take<double>(size);
    if (!memory) return;
    for (int64_t i = 0, from = 0; i < p.n_layers; from = ends[i++])
      if (!layers[i]->keeps_gradient() && ends[i] > from) formed.push_back({from, ends[i]});
    std::copy_n(p.start, size, weights);
    c.parameters.weights = weights, c.parameters.target = gradient;
  }

  // The sum over all records, in their order.
  void add(const Records& r, const Loss& loss) {
    c.moment.names = r.names;
    add_rows(r.x, r.keys, nullptr, 0, r.n, r.piece, r.clip, r.norms, loss);
    for (int64_t i = 0; i < p.size; ++i) r.total[i] = sum[p.places[i]];
  }

 protected:
  // `sum` becomes that over the records at rows_of[from] to rows_of[to], in this order; null: from `from` to `to`.
  void add_rows(const float* x, const uint64_t* keys, const int64_t* rows_of, int64_t from, int64_t to, int64_t most,
                double clip, double* norms, const Loss& loss) {
    std::fill_n(sum, c.parameters.size, 0.0);
    for (; from < to; from += most) {
      add_piece(x, keys, rows_of, from, std::min(to, from + most), clip, norms, loss);
      for (int64_t i = 0; i < c.parameters.size; ++i) sum[i] += piece[i];
    }
  }

  float* weights;
  double* sum;

 private:
  void add_piece(const float* x, const uint64_t* keys, const int64_t* rows_of, int64_t from, int64_t to, double clip,
                 double* norms, const Loss& loss) {
    std::fill_n(piece, c.parameters.size, 0.0);
    for (int64_t i = from; i < to; ++i) {
      const int64_t row = rows_of ? rows_of[i] : i;
      if (keys) c.moment.key = keys[row];
      for (const auto& [first, last] : formed) std::fill(gradient + first, gradient + last, 0.0f);
      add_gradients(x, &row, 1, 1, loss);
      norms[i] = norm();
      if (const double factor = clip_factor(norms[i], clip)) add_gradient(factor);
    }
    for (const auto& layer : layers) layer->add_waiting(piece);
  }

  static double clip_factor(double norm, double clip) {
    if (!(norm <= std::numeric_limits<double>::max())) return 0;
    return std::min(clip / std::max(norm, 1e-30), 1.0);
  }

  // Of the record's gradient. Its padding, which may hold anything, becomes zero.
  double norm() {
    double square = 0;
    for (const auto& layer : layers) square += layer->square();
    for (const auto& [from, to] : formed) {
      doubles squares{};
      for (int64_t i = from; i < to; i += LANES) {
        const vec g = load(p.real + i) != vec{} ? load(gradient + i) : vec{};
        store(gradient + i, g);
        squares += exact(g) * exact(g);
      }
      square += total(squares);
    }
    return std::sqrt(square);
  }

  void add_gradient(double factor) {
    for (const auto& layer : layers) layer->add_gradient(factor, piece);
    for (const auto& [from, to] : formed)
      for (int64_t i = from; i < to; i += LANES)
        store(piece + i, load<doubles>(piece + i) + factor * exact(load(gradient + i)));
  }

  std::vector<std::pair<int64_t, int64_t>> formed;  // from where to where gradients are formed
  float* gradient;
  double* piece;
};
