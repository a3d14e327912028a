// Layers on features. Template arguments: sizes, where the parameters are in torch's order (FLAT) and in the block's own
// (OWN), and places in a row: what a layer reads (X) and writes (Y), their gradients (GX, GY).
#pragma once
#include "block.h"

constexpr int TOGETHER = 4;  // sums of a lane at once
constexpr int INPUTS = 8;    // weights of a lane at once

// A function of a layer is one piece of code for all layers of its sizes: a step is longer than the cache of instructions
// if every layer has code of its own. So places are arguments of these functions, and sizes are those of templates.
template <int R>
struct Places {
  const float* from[R];
  float* to[R];
};

template <int X, int Y, int R>
INSIDE Places<R> places(const Group<R>& group) {
  Places<R> found;
  UNROLL
  for (int r = 0; r < R; ++r) {
    found.from[r] = group.rows[r].template read<X>();
    found.to[r] = group.rows[r].template write<Y>();
  }
  return found;
}

// Whether the lane's k-th number from `first` on is one of `size`.
INSIDE bool inside(int size, int first, int k) { return k * LANES < size && first + k * LANES < size; }

// The weights w[stride (first + k LANES)] times the j-th factors.
template <int R, int SIZE>
INSIDE void add(float (&sums)[TOGETHER][R], const float* w, int stride, int first, const Four (&factors)[R], int j) {
  UNROLL
  for (int k = 0; k < TOGETHER; ++k) {
    if (!inside(SIZE, first, k)) continue;
    const float own = w[(first + k * LANES) * stride];
    UNROLL
    for (int r = 0; r < R; ++r) sums[k][r] += own * factors[r].at[j];
  }
}

// to[o] = bias[o] + the sum over i < N of from[i] w[i ALONG + o ACROSS], o < M.
template <int N, int M, int ALONG, int ACROSS, int R>
SHARED_CODE void multiply(const float* w, const float* bias, Places<R> at) {
  for (int first = lane(); first < M; first += TOGETHER * LANES) {
    float sums[TOGETHER][R];
    UNROLL
    for (int k = 0; k < TOGETHER; ++k) {
      UNROLL
      for (int r = 0; r < R; ++r) sums[k][r] = bias && inside(M, first, k) ? bias[first + k * LANES] : 0;
    }
    UNROLL_BY("unroll 4")
    for (int i = 0; i < N / 4 * 4; i += 4) {
      Four x[R];
      UNROLL
      for (int r = 0; r < R; ++r) x[r] = four_at(at.from[r] + i);
      UNROLL
      for (int j = 0; j < 4; ++j) add<R, M>(sums, w + (i + j) * ALONG, ACROSS, first, x, j);
    }
    UNROLL
    for (int i = N / 4 * 4; i < N; ++i) {
      Four x[R];
      UNROLL
      for (int r = 0; r < R; ++r) x[r].at[0] = at.from[r][i];
      add<R, M>(sums, w + i * ALONG, ACROSS, first, x, 0);
    }
    UNROLL
    for (int k = 0; k < TOGETHER; ++k) {
      UNROLL
      for (int r = 0; r < R; ++r)
        if (inside(M, first, k)) at.to[r][first + k * LANES] = sums[k][r];
    }
  }
  team_sync();
}

// Moves the weights of INPUTS inputs from i on to output o, by the rows' inputs x and gradients g, which lie STEP apart.
// What lies behind the last input is read and never used.
template <int N, int M, int STEP>
SHARED_CODE void move_weights(Block& b, const float* x, const float* g, int i, int o, int own, int flat, bool biased) {
  constexpr int LINE = M | 1;
  if (o >= M) return;
  float sums[INPUTS] = {}, bias = 0;
  UNROLL_BY("unroll 4")
  for (int r = 0; r < b.rows; ++r) {
    const float slope = g[r * STEP + o];
    UNROLL
    for (int k = 0; k < INPUTS; k += 4) {
      const Four four = four_at(x + r * STEP + i + k);
      UNROLL
      for (int j = 0; j < 4; ++j) sums[k + j] += four.at[j] * slope;
    }
    bias += slope;
  }
  UNROLL
  for (int k = 0; k < INPUTS; ++k)
    if (i + k < N) b.descend(own + (i + k) * LINE + o, flat + o * N + i + k, sums[k]);
  if (biased && i == 0) b.descend(own + N * LINE + o, flat + N * M + o, bias);
}

// y = W x + b. The weights lie transposed, with an odd number of them in a line, so that lanes that read a line or a
// column use different banks of memory.
template <int N, int M, bool BIASED, bool LOWEST, int FLAT, int OWN, int X, int Y, int GX, int GY>
struct Dense {
  static constexpr int LINE = M | 1, BIAS = OWN + N * LINE, OUTPUTS = ceil_of(M, LANES);

  static constexpr int SIZE = N * M + (BIASED ? M : 0), FROM = FLAT;
  INSIDE static int place(int i) { return i < N * M ? OWN + i % N * LINE + i / N : BIAS + i - N * M; }

  template <int R>
  INSIDE static void forward(const Block& b, const Group<R>& group) {
    multiply<N, M, LINE, 1, R>(b.weights + OWN, BIASED ? b.weights + BIAS : nullptr, places<X, Y>(group));
  }

  template <int R>
  INSIDE static void backward(const Block& b, const Group<R>& group) {
    if constexpr (!LOWEST) multiply<M, N, 1, LINE, R>(b.weights + OWN, nullptr, places<GY, GX>(group));
  }

  // A lane has the weights of INPUTS inputs to one output, and adds up over the rows.
  template <class Rows>
  INSIDE static int gather(Block& b, const Rows& rows, int turn) {
    static_assert(X >= 0);
    constexpr int UNITS = ceil_of(N, INPUTS) * OUTPUTS;
    for (; turn < UNITS; turn += teams()) {
      const int i = turn / OUTPUTS * INPUTS, o = turn % OUTPUTS * LANES + lane();
      move_weights<N, M, Rows::STEP>(b, b.arena + X, b.arena + GY, i, o, OWN, FLAT, BIASED);
    }
    return turn - UNITS;
  }
};

// Layers without parameters.
struct Plain {
  static constexpr int SIZE = 0, FROM = 0;
  INSIDE static int place(int) { return 0; }
  template <class Rows>
  INSIDE static int gather(Block&, const Rows&, int turn) { return turn; }
};

// A copy of the record, for layers that read it often.
template <int N, int Y>
struct Record : Plain {
  template <int R>
  INSIDE static void forward(const Block&, const Group<R>& group) {
    UNROLL
    for (int r = 0; r < R; ++r) each<N>(group.rows[r].record, group.rows[r].template write<Y>(), Same());
    team_sync();
  }
  template <int R>
  INSIDE static void backward(const Block&, const Group<R>&) {}
};

// NaN stays NaN, as in torch.
INSIDE float relu(float x) { return x < 0 ? 0 : x; }
INSIDE float relu_back(float x, float g) { return x <= 0 ? 0 : g; }

// x, or its positive part.
template <bool RECTIFIED>
INSIDE float part(float x) { return RECTIFIED ? relu(x) : x; }

// stats: a row's mean and 1 / deviation.
template <int N, bool RECTIFIED, bool AFFINE, class EPSILON, int R>
SHARED_CODE void normalise(const float* w, Places<R> at, Places<R> stats) {
  constexpr float SHARE = 1.0f / N;
  float means[R] = {}, squares[R] = {};
  UNROLL
  for (int r = 0; r < R; ++r)
    for (int i = lane(); i < N; i += LANES) means[r] += part<RECTIFIED>(at.from[r][i]);
  team_sums(means);
  UNROLL
  for (int r = 0; r < R; ++r) {
    means[r] *= SHARE;
    for (int i = lane(); i < N; i += LANES) {
      const float away = part<RECTIFIED>(at.from[r][i]) - means[r];
      squares[r] += away * away;
    }
  }
  team_sums(squares);
  UNROLL
  for (int r = 0; r < R; ++r) {
    const float scale = inverse_root(squares[r] * SHARE + EPSILON::value);
    for (int i = lane(); i < N; i += LANES) {
      const float normal = (part<RECTIFIED>(at.from[r][i]) - means[r]) * scale;
      at.to[r][i] = AFFINE ? normal * w[i] + w[N + i] : normal;
    }
    if (lane() == 0) stats.to[r][0] = means[r], stats.to[r][1] = scale;
  }
  team_sync();
}

// The gradient by x from that by y.
template <int N, bool RECTIFIED, bool AFFINE, int R>
SHARED_CODE void normalise_back(const float* w, Places<R> inputs, Places<R> at, Places<R> stats) {
  constexpr float SHARE = 1.0f / N;
  float sums[R] = {}, along[R] = {};
  UNROLL
  for (int r = 0; r < R; ++r) {
    const float mean = stats.from[r][0], scale = stats.from[r][1];
    for (int i = lane(); i < N; i += LANES) {
      const float own = AFFINE ? at.from[r][i] * w[i] : at.from[r][i];
      sums[r] += own, along[r] += own * ((part<RECTIFIED>(inputs.from[r][i]) - mean) * scale);
    }
  }
  team_sums(sums), team_sums(along);
  UNROLL
  for (int r = 0; r < R; ++r) {
    const float mean = stats.from[r][0], scale = stats.from[r][1];
    for (int i = lane(); i < N; i += LANES) {
      const float x = inputs.from[r][i], own = AFFINE ? at.from[r][i] * w[i] : at.from[r][i];
      const float normal = (part<RECTIFIED>(x) - mean) * scale;
      const float found = scale * (own - sums[r] * SHARE - normal * (along[r] * SHARE));
      at.to[r][i] = RECTIFIED ? relu_back(x, found) : found;
    }
  }
  team_sync();
}

template <int N, bool RECTIFIED, int STEP>
SHARED_CODE void move_scales(Block& b, const float* x, const float* stats, const float* g, int i, int own, int flat) {
  if (i >= N) return;
  float slope = 0, shift = 0;
  UNROLL_BY("unroll 4")
  for (int r = 0; r < b.rows; ++r) {
    const float mine = g[r * STEP + i];
    slope += mine * ((part<RECTIFIED>(x[r * STEP + i]) - stats[r * STEP]) * stats[r * STEP + 1]), shift += mine;
  }
  b.descend(own + i, flat + i, slope);
  b.descend(own + N + i, flat + N + i, shift);
}

// Normalisation of a record's features, of their positive parts where RECTIFIED.
template <int N, bool RECTIFIED, bool AFFINE, class EPSILON, int FLAT, int OWN, int X, int Y, int STATS, int GX, int GY>
struct Norm {
  static constexpr int SIZE = AFFINE ? 2 * N : 0, FROM = FLAT;
  INSIDE static int place(int i) { return OWN + i; }

  template <int R>
  INSIDE static void forward(const Block& b, const Group<R>& group) {
    normalise<N, RECTIFIED, AFFINE, EPSILON, R>(b.weights + OWN, places<X, Y>(group), places<STATS, STATS>(group));
  }

  template <int R>
  INSIDE static void backward(const Block& b, const Group<R>& group) {
    if constexpr (GX != NOWHERE)
      normalise_back<N, RECTIFIED, AFFINE, R>(b.weights + OWN, places<X, Y>(group), places<GY, GX>(group),
                                              places<STATS, STATS>(group));
  }

  template <class Rows>
  INSIDE static int gather(Block& b, const Rows& rows, int turn) {
    constexpr int UNITS = AFFINE ? ceil_of(N, LANES) : 0;
    for (; turn < UNITS; turn += teams())
      move_scales<N, RECTIFIED, Rows::STEP>(b, b.arena + X, b.arena + STATS, b.arena + GY, turn * LANES + lane(), OWN, FLAT);
    return turn - UNITS;
  }
};

// Functions of single numbers: a value, and g times their slope, from x where READS_INPUT, else from y.
struct ReLU {
  static constexpr bool READS_INPUT = false;
  INSIDE static float value(float x) { return relu(x); }
  INSIDE static float back(float y, float g) { return relu_back(y, g); }
};

struct Tanh {
  static constexpr bool READS_INPUT = false;
  INSIDE static float value(float x) { return tanhf(x); }
  INSIDE static float back(float y, float g) { return g * (1 - y * y); }
};

struct Sigmoid {
  static constexpr bool READS_INPUT = false;
  INSIDE static float value(float x) { return 1 / (1 + expf(-x)); }
  INSIDE static float back(float y, float g) { return g * (y * (1 - y)); }
};

struct SiLU {
  static constexpr bool READS_INPUT = true;
  INSIDE static float value(float x) { return x / (1 + expf(-x)); }
  INSIDE static float back(float x, float g) {
    const float s = 1 / (1 + expf(-x));
    return g * (s * (1 + x * (1 - s)));
  }
};

struct GELU {
  static constexpr bool READS_INPUT = true;
  INSIDE static float below(float x) { return 0.5f * (1 + erff(x * 0.70710678f)); }
  INSIDE static float value(float x) { return x * below(x); }
  INSIDE static float back(float x, float g) { return g * (below(x) + 0.39894228f * x * expf(-0.5f * x * x)); }
};

struct GELUByTanh {
  static constexpr bool READS_INPUT = true;
  static constexpr float SCALE = 0.79788456f, CUBIC = 0.044715f;
  INSIDE static float value(float x) { return 0.5f * x * (1 + tanhf(SCALE * x * (1 + CUBIC * x * x))); }
  INSIDE static float back(float x, float g) {
    const float t = tanhf(SCALE * x * (1 + CUBIC * x * x));
    return g * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * SCALE * (1 + 3 * CUBIC * x * x));
  }
};

// X and Y are the same place where nobody reads x again; the gradient stays where it is.
template <class Function, int N, int X, int Y, int G>
struct Elementwise : Plain {
  template <int R>
  INSIDE static void forward(const Block&, const Group<R>& group) {
    UNROLL
    for (int r = 0; r < R; ++r) {
      const Row& row = group.rows[r];
      each<N>(row.read<X>(), row.write<Y>(), [](int, float x) { return Function::value(x); });
    }
    team_sync();
  }

  template <int R>
  INSIDE static void backward(const Block&, const Group<R>& group) {
    if constexpr (G != NOWHERE) {
      UNROLL
      for (int r = 0; r < R; ++r) {
        const Row& row = group.rows[r];
        const float* g = row.read<G>();
        each<N>(row.read<(Function::READS_INPUT ? X : Y)>(), row.write<G>(),
                [g](int i, float number) { return Function::back(number, g[i]); });
      }
      team_sync();
    }
  }
};

// Drops features, or channels of AREA numbers; what is dropped is zero whatever it was. Layers of probability
// 1/2 share the words at WORDS, one bit each; another draws its own.
template <int M, int AREA, int THRESHOLD, class SCALE>
SHARED_CODE void drop(const int* words, int bit, u64 key, const float* from, float* to) {
  each<M * AREA>(from, to, [=](int i, float x) {
    const int word = words ? words[i / AREA] : word_of(key, i / AREA);
    return int(unsigned(word) << bit) > THRESHOLD ? x * SCALE::value : 0;
  });
  team_sync();
}

template <int M, int AREA, bool HALF, int ORDINAL, int THRESHOLD, class SCALE, int WORDS, int X, int Y, int G>
struct Dropout : Plain {
  template <int FROM, int TO>
  INSIDE static void masked(const Block& b, const Row& row) {
    const Task& t = b.task;
    const int* words = HALF ? reinterpret_cast<const int*>(row.read<WORDS>()) : nullptr;
    u64 key = 0;
    if constexpr (!HALF) {
      const u64 name = t.own[(i64(b.epoch) * t.places + b.place) * t.drawing + ORDINAL];
      key = mix64(b.dropout_key + branch(name, u64(row.row)));
    }
    drop<M, AREA, THRESHOLD, SCALE>(words, HALF ? b.coins + ORDINAL : 0, key, row.read<FROM>(), row.write<TO>());
  }

  template <int R>
  INSIDE static void forward(const Block& b, const Group<R>& group) {
    UNROLL
    for (int r = 0; r < R; ++r) masked<X, Y>(b, group.rows[r]);
  }

  template <int R>
  INSIDE static void backward(const Block& b, const Group<R>& group) {
    if constexpr (G != NOWHERE) {
      UNROLL
      for (int r = 0; r < R; ++r) masked<G, G>(b, group.rows[r]);
    }
  }
};
