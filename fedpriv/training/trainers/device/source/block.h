// What a block of threads knows: the task that all users share, the user that it trains now, and its batch.
#pragma once
#include "draws.h"

// start, correction: (size,) in torch's order, correction may be null. shared (groups, places), own (epochs, places,
// drawing): names of random words, see dropout. Users: k of them, each with the addresses of its records x (count,
// features) and labels, its number of records and its keys; row j of deltas (k, size) is its. next: the first user that nobody has
// taken. arenas, gradients, numbers, orders: scratch memory of every block, `arena`, `size`, `longest` and `longest`
// numbers each. rows: of a batch in the arena at once; batch: records of a batch.
struct Task {
  const float *start, *correction;
  const u64 *shared, *own;
  const u64 *x, *y, *order_keys, *dropout_keys;
  const i64* counts;
  float *deltas, *arenas, *gradients;
  u64* numbers;
  int* orders;
  int* next;
  i64 arena, longest;
  int k, size, epochs, batch, rows, places, drawing, epochs_a_word;
  float lr, proximal;
};

struct Block {
  const Task& task;
  float* weights;    // in the layers' own order
  float* scratches;  // one a team
  float* arena;      // rows of activations and their gradients
  float* gradient;   // of a batch that does not fit the arena, in torch's order
  u64* numbers;
  int* order;

  const float* x = nullptr;
  const void* y = nullptr;
  u64 dropout_key = 0;
  int count = 0;
  bool shuffled = false;
  // The piece of a batch that is computed now: `rows` of its rows from `row` on. scale: 1 / rows of the batch.
  int epoch = 0, place = 0, at = 0, row = 0, rows = 0;
  float scale = 0;
  int coins = 0;  // bits of a shared word that earlier epochs have used
  bool opens = true, ends = true;  // whether it is the first, the last piece of its batch

  // Which of the user's records the piece's row r is.
  INSIDE int record(int r) const { return shuffled ? order[at + row + r] : at + row + r; }

  // The gradient of one weight is known: add it to that of the other pieces, or move the weight.
  INSIDE void descend(int own, int flat, float g) {
    if (!opens) g += gradient[flat];
    if (!ends) {
      gradient[flat] = g;
      return;
    }
    const float w = weights[own];
    if (task.proximal != 0) g += task.proximal * (w - task.start[flat]);
    if (task.correction) g += task.correction[flat];
    weights[own] = w - task.lr * g;
  }
};

// A row that a team computes: its numbers in the arena, and the record.
struct Row {
  float* numbers;
  const float* record;
  float* scratch;
  int row;  // in the batch

  // Places below zero stand for the record.
  template <int PLACE>
  INSIDE const float* read() const { return PLACE < 0 ? record : numbers + PLACE; }
  template <int PLACE>
  INSIDE float* write() const { return numbers + PLACE; }
};

// The rows that a team computes at once: their sums do not wait for one another, and share loads of the weights.
template <int R>
struct Group {
  Row rows[R];
};

INSIDE constexpr int ceil_of(int a, int b) { return (a + b - 1) / b; }
constexpr int NOWHERE = -2;
constexpr int AHEAD = 8;  // loads of a lane before it uses the first

// to[i] = change(i, from[i]) for the team's part of N numbers; `from` may be `to`.
template <int N, class Change>
INSIDE void each(const float* from, float* to, Change change) {
  if constexpr (N <= 2 * LANES) {
    for (int i = lane(); i < N; i += LANES) to[i] = change(i, from[i]);
  } else {
    for (int first = lane(); first < N; first += AHEAD * LANES) {
      float numbers[AHEAD];
      UNROLL
      for (int k = 0; k < AHEAD; ++k) numbers[k] = first + k * LANES < N ? from[first + k * LANES] : 0;
      UNROLL
      for (int k = 0; k < AHEAD; ++k)
        if (first + k * LANES < N) to[first + k * LANES] = change(first + k * LANES, numbers[k]);
    }
  }
}

struct Same {
  INSIDE float operator()(int, float x) const { return x; }
};
