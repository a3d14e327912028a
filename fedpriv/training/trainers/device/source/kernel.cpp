// Local training of users: a block of threads trains one user, from its first step to its last, and then takes the next.
// Its parameters stay in shared memory. A team trains on one record at a time; then all teams move the weights. No
// user's result depends on another's. `sizes.h` (MOST_TEAMS, LEAST_BLOCKS that must fit a
// multiprocessor, and ROWS_TOGETHER that a team computes at once) and `layers.h` (Network) are generated for a network.
#include "sizes.h"

#include "block.h"
#include "dense.h"
#include "images.h"

template <class... Layers>
struct Chain;

template <>
struct Chain<> : Plain {
  template <class Use>
  INSIDE static void weights(int, int, const Use&) {}
  template <int R>
  INSIDE static void forward(const Block&, const Group<R>&) {}
  template <int R>
  INSIDE static void backward(const Block&, const Group<R>&) {}
};

template <class First, class... Others>
struct Chain<First, Others...> {
  typedef Chain<Others...> Rest;
  // use(place among the block's own weights, place in torch's order) for the thread's part of them.
  template <class Use>
  INSIDE static void weights(int thread, int threads, const Use& use) {
    for (int i = thread; i < First::SIZE; i += threads) use(First::place(i), First::FROM + i);
    Rest::weights(thread, threads, use);
  }
  template <int R>
  INSIDE static void forward(const Block& b, const Group<R>& group) { First::forward(b, group), Rest::forward(b, group); }
  template <int R>
  INSIDE static void backward(const Block& b, const Group<R>& group) { Rest::backward(b, group), First::backward(b, group); }
  template <class Rows>
  INSIDE static int gather(Block& b, const Rows& rows, int turn) { return Rest::gather(b, rows, First::gather(b, rows, turn)); }
};

#include "layers.h"

typedef Network::Layers All;
constexpr int FEW_OUTPUTS = 4;

// All rows of the piece.
struct Rows {
  static constexpr int STEP = Network::ROW;
  const Block& b;
  template <int PLACE>
  INSIDE const float* read(int r) const {
    return PLACE < 0 ? b.x + i64(b.record(r)) * Network::FEATURES : b.arena + r * Network::ROW + PLACE;
  }
  INSIDE float* scratch(int team) const { return b.scratches + team * Network::SCRATCH; }
};

enum { CROSS_ENTROPY, LOGISTIC, SQUARED, SURVIVAL };

// The slope of a loss of one output.
INSIDE float slope(float z, const float* y) {
  if (Network::LOSS == LOGISTIC) return 1 / (1 + expf(-z)) - y[0];
  return Network::LOSS == SQUARED ? z - y[0] : expf(z > 8 ? 8 : z) * y[1] - y[0];
}

// scale times the gradient of the record's loss by the outputs.
INSIDE void loss_gradient(const Block& b, const Row& row, int record) {
  constexpr int M = Network::OUTPUTS;
  const float* z = row.read<Network::Z>();
  float* g = row.write<Network::GZ>();
  if constexpr (Network::LOSS != CROSS_ENTROPY) {
    const float* y = static_cast<const float*>(b.y) + record * (Network::LOSS == SURVIVAL ? 2 : 1);
    if (lane() == 0) g[0] = slope(z[0], y) * b.scale;
    return;
  }
  float most = z[0], sum = 0;
  if constexpr (M <= FEW_OUTPUTS) {  // every lane adds up all of them
    UNROLL
    for (int i = 0; i < M; ++i) most = z[i] > most || z[i] != z[i] ? z[i] : most;
    UNROLL
    for (int i = 0; i < M; ++i) sum += expf(z[i] - most);
  } else {
    for (int i = lane(); i < M; i += LANES) most = z[i] > most || z[i] != z[i] ? z[i] : most;
    most = team_max(most);
    for (int i = lane(); i < M; i += LANES) sum += expf(z[i] - most);
    sum = team_sum(sum);
  }
  const float share = b.scale / sum;
  const i64 label = static_cast<const i64*>(b.y)[record];
  for (int i = lane(); i < M; i += LANES) g[i] = expf(z[i] - most) * share - (i == label ? b.scale : 0);
}

// Forward and backward passes of R rows of the piece from r on, which are the team's.
template <int R>
INSIDE void pass(const Block& b, int first) {
  const Task& t = b.task;
  Group<R> group;
  UNROLL
  for (int k = 0; k < R; ++k) {
    const int r = first + k;
    const float* record = b.x + i64(b.record(r)) * Network::FEATURES;
    group.rows[k] = {b.arena + r * Network::ROW, record, b.scratches + team() * Network::SCRATCH, b.row + r};
    if constexpr (Network::SHARED_WORDS > 0) {
      const u64 name = t.shared[i64(b.epoch / t.epochs_a_word) * t.places + b.place];
      const u64 key = mix64(b.dropout_key + branch(name, u64(b.row + r)));
      int* words = reinterpret_cast<int*>(group.rows[k].template write<Network::WORDS>());
      for (int i = lane(); i < Network::SHARED_WORDS; i += LANES) words[i] = word_of(key, i);
    }
  }
  All::forward(b, group);
  UNROLL
  for (int k = 0; k < R; ++k) loss_gradient(b, group.rows[k], b.record(first + k));
  team_sync();
  All::backward(b, group);
}

// All rows of the piece, several at once where every team has so many.
INSIDE void passes(const Block& b) {
  int done = 0;
  if constexpr (ROWS_TOGETHER > 1) {
    const int together = ROWS_TOGETHER * teams();
    for (; done + together <= b.rows; done += together) pass<ROWS_TOGETHER>(b, done + ROWS_TOGETHER * team());
  }
  for (int r = done + team(); r < b.rows; r += teams()) pass<1>(b, r);
}

INSIDE void step(Block& b, int size) {
  b.scale = 1 / float(size);
  for (b.row = 0; b.row < size; b.row += b.task.rows) {
    b.rows = size - b.row < b.task.rows ? size - b.row : b.task.rows;
    b.opens = b.row == 0, b.ends = b.row + b.rows == size;
    passes(b);
    block_sync();
    All::gather(b, Rows{b}, team());
    block_sync();
  }
}

// The records in the order of their random numbers, which are distinct: each goes where its rank is.
INSIDE void shuffle(Block& b, u64 key, int thread, int threads) {
  for (int i = thread; i < b.count; i += threads) b.numbers[i] = branch(key, u64(i));
  block_sync();
  for (int i = thread; i < b.count; i += threads) {
    const u64 own = b.numbers[i];
    int rank = 0;
    for (int j = 0; j < b.count; ++j) rank += b.numbers[j] < own;
    b.order[rank] = i;
  }
  block_sync();
}

INSIDE void train_user(Block& b, int j) {
  const Task& t = b.task;
  const int thread = team() * LANES + lane(), threads = teams() * LANES;
  All::weights(thread, threads, [&](int own, int flat) { b.weights[own] = t.start[flat]; });
  b.x = reinterpret_cast<const float*>(t.x[j]), b.y = reinterpret_cast<const void*>(t.y[j]);
  b.dropout_key = t.dropout_keys[j], b.count = int(t.counts[j]), b.shuffled = b.count > t.batch;
  block_sync();
  for (b.epoch = 0; b.epoch < t.epochs; ++b.epoch) {
    if (b.shuffled) shuffle(b, branch(t.order_keys[j], u64(b.epoch)), thread, threads);
    b.coins = b.epoch % t.epochs_a_word * t.drawing;
    b.place = 0;
    for (b.at = 0; b.at < b.count; b.at += t.batch, ++b.place) step(b, b.count - b.at < t.batch ? b.count - b.at : t.batch);
  }
  float* delta = t.deltas + i64(j) * t.size;
  All::weights(thread, threads, [&](int own, int flat) { delta[flat] = b.weights[own] - t.start[flat]; });
  block_sync();
}

// memory: shared by the block's threads: 4 numbers, the weights, scratch memory of every team, and the arena if it fits.
INSIDE void train_users(const Task& t, float* memory) {
  int* taken = reinterpret_cast<int*>(memory);
  float *weights = memory + 4, *scratches = weights + Network::WEIGHTS;
  float* inside = scratches + teams() * Network::SCRATCH;
  Block b{t,
          weights,
          scratches,
          Network::SHARED_ARENA ? inside : t.arenas + block() * t.arena,
          t.gradients + i64(block()) * t.size,
          t.numbers + block() * t.longest,
          t.orders + block() * t.longest};
  for (;;) {
    if (team() == 0 && lane() == 0) *taken = take_next(t.next);
    block_sync();
    const int j = *taken;
    block_sync();
    if (j >= t.k) return;
    train_user(b, j);
  }
}

#if defined(__CUDACC__)

extern __shared__ float4 shared_memory[];

extern "C" __global__ void __launch_bounds__(MOST_TEAMS * LANES, LEAST_BLOCKS) train(const Task task) {
  train_users(task, reinterpret_cast<float*>(shared_memory));
}

#else

#if LANES_HERE > 1 || MOST_TEAMS > 1
#include <thread>
#include <vector>
#endif

extern "C" void train(const Task* task, float* memory) {
#if LANES_HERE > 1 || MOST_TEAMS > 1
  pthread_barrier_init(&whole_block, nullptr, LANES * MOST_TEAMS);
  for (auto& own : whole_team) pthread_barrier_init(&own, nullptr, LANES);
  std::vector<std::thread> threads;
  for (int i = 0; i < LANES * MOST_TEAMS; ++i)
    threads.emplace_back([=] {
      here = i;
      train_users(*task, memory);
    });
  for (auto& own : threads) own.join();
#else
  train_users(*task, memory);
#endif
}

#endif
