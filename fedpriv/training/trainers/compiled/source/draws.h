// Random numbers that are functions of keys and counters, bit for bit those of fedpriv.streams and random_words:
// what a user draws depends on its own keys alone.
#pragma once
#include "vectors.h"

constexpr uint64_t GAMMA = 0x9E3779B97F4A7C15;

// SplitMix64's finaliser, of one number or of each lane.
template <class T>
inline T mix64(T z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

inline uint64_t branch(uint64_t key, uint64_t counter) { return mix64(key + GAMMA * (counter + 1)); }

// The places 0 to n - 1 in the order of the random numbers branch(key, place), which are distinct.
// They are uniform: a bucket for each by its leading bits leaves little to sort.
// numbers (n,), order (n,), ends (n + 1,): scratch, and order is the result.
inline void shuffle(uint64_t key, int64_t n, uint64_t* numbers, int64_t* order, int64_t* ends) {
  auto bucket = [n](uint64_t number) { return int64_t((unsigned __int128)number * uint64_t(n) >> 64); };
  std::memset(ends, 0, sizeof(int64_t) * (n + 1));
  for (int64_t i = 0; i < n; ++i) ++ends[bucket(numbers[i] = branch(key, i)) + 1];
  for (int64_t b = 0; b < n; ++b) ends[b + 1] += ends[b];
  for (int64_t i = 0; i < n; ++i) order[ends[bucket(numbers[i])]++] = i;
  for (int64_t i = 1; i < n; ++i) {
    int64_t moving = order[i], j = i;
    for (; j > 0 && numbers[order[j - 1]] > numbers[moving]; --j) order[j] = order[j - 1];
    order[j] = moving;
  }
}

// words (rows, padded(features)): those of a key in the rows from `row` on of what `name` names.
inline void draw_words(uint64_t key, uint64_t name, int64_t row, int64_t rows, int64_t features, int32_t* words) {
  longs steps{};
  for (int i = 0; i < LANES / 2; ++i) steps[i] = GAMMA * uint64_t(i + 1);
  const int64_t width = padded(features);
  for (int64_t r = 0; r < rows; ++r) {
    const longs row_key = mix64(key + branch(name, row + r)) + steps;
    for (int64_t j = 0; j < width; j += LANES)
      store(words + r * width + j, (ints)mix64(row_key + GAMMA * uint64_t(j / 2)));
  }
}
