// Dropout by the unit-keyed words of fedpriv.training.trainers.buffers.Masks, of which C++ computes the same bits.
#pragma once
#include "network.h"

// Names of what words are drawn for: shared (groups, places, words) for layers of probability 1/2, each of which takes
// one bit of a word, and own (epochs, places, layers) for the others. epochs_a_word: how many epochs share a word.
struct Names {
  const uint64_t *shared, *own;
  int64_t places, layers, words, epochs_a_word;
};

// The last words drawn, which layers of equal width and probability 1/2 share.
struct Words {
  int32_t* at = nullptr;
  uint64_t key = 0, name = 0;
  int64_t row = 0, rows = 0, features = 0, widest = 0;

  const int32_t* draw(const Moment& now, uint64_t wanted, int64_t n, int64_t m) {
    if (key != now.key || name != wanted || row != now.row || rows != n || features != m)
      draw_words(now.key, wanted, now.row, n, m, at);
    key = now.key, name = wanted, row = now.row, rows = n, features = m;
    return at;
  }
};

// Drops numbers of rows of `features` coins, each for the `area` numbers of a channel, or for one. In place; what is
// dropped is zero whatever it was.
class Dropout final : public Layer {
 public:
  Dropout(Context& c, Words& words, const Names& names, int64_t ordinal, int64_t features, int64_t area, bool half,
          int32_t threshold, float scale)
      : c(c), words(words), names(names), ordinal(ordinal), m(features), row(padded(m)), area(area),
        v_row(padded(m * area)), half(half), threshold(threshold), scale(scale) {
    words.widest = std::max(words.widest, row);
    c.gradients.need(v_row + LANES);
  }

  float* forward(float* x, int64_t rows) override { return masked(x, rows); }
  float* backward(float* g, int64_t rows) override { return masked(g, rows); }

 private:
  float* masked(float* v, int64_t rows) {
    const Moment& now = c.moment;
    const int64_t coin = now.epoch % names.epochs_a_word * names.layers + ordinal;
    const int64_t group = now.epoch / names.epochs_a_word;
    const uint64_t name = half ? names.shared[(group * names.places + now.place) * names.words + coin / 32]
                               : names.own[(now.epoch * names.places + now.place) * names.layers + ordinal];
    const int32_t* word = words.draw(now, name, rows, m);
    const int bit = half ? int(coin % 32) : 0;
    if (area == 1) numbers(v, word, bit, rows * row);
    for (int64_t r = 0; area > 1 && r < rows; ++r, word += row) channels(v + r * v_row, word, bit);
    return v;
  }

  void numbers(float* v, const int32_t* word, int bit, int64_t count) const {
    const vec factor = broadcast(scale);
    const ints least = threshold - ints{};
    for (int64_t j = 0; j < count; j += LANES)
      store(v + j, (load<ints>(word + j) << bit) > least ? load(v + j) * factor : vec{});
  }

  void channels(float* v, const int32_t* word, int bit) const {
    for (int64_t k = 0; k < m; ++k, v += area) {
      const bool kept = int32_t(uint32_t(word[k]) << bit) > threshold;
      for (int64_t j = 0; j < area; ++j) v[j] = kept ? v[j] * scale : 0;
    }
  }

  Context& c;
  Words& words;
  const Names& names;
  const int64_t ordinal, m, row, area, v_row;
  const bool half;
  const int32_t threshold;
  const float scale;
};

// Drops numbers of one record, in each row by coins, each for as many of its numbers as the others. In place.
class Mask final : public Layer {
 public:
  Mask(Context& c, int64_t ordinal, int64_t coins, int64_t numbers, int32_t threshold, float scale)
      : c(c), ordinal(ordinal), coins(coins), area(numbers / coins), v_row(padded(numbers)), steps(c.gradients.steps),
        words(c.memory.take<int32_t>(padded(steps * coins))), threshold(threshold), scale(scale) {
    c.gradients.need(v_row);
  }

  float* forward(float* x, int64_t rows) override {
    draw_words(c.moment.key, c.moment.names[ordinal], 0, 1, steps * coins, words);
    return masked(x, rows);
  }
  float* backward(float* g, int64_t rows) override { return masked(g, rows); }

 private:
  float* masked(float* v, int64_t rows) {
    const int32_t* word = words;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < coins; ++k, ++word)
        for (int64_t j = 0; j < area; ++j) v[r * v_row + k * area + j] *= *word > threshold ? scale : 0;
    return v;
  }

  Context& c;
  const int64_t ordinal, coins, area, v_row, steps;
  int32_t* const words;
  const int32_t threshold;
  const float scale;
};
