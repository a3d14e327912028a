// Convolutions of stride 1 without zeros around, with the maxima over windows of their output.
#pragma once
#include "block.h"

// C images of H x W become M of POSITIONS numbers: the largest of each PH x PW numbers, whose places in their windows
// are bytes at ARGUMENTS. A lane computes OUTPUTS channels of one window at once. X: may be the record itself.
// Gradients are sparse, since a window passes its own to one number, and ReLU or dropout passes none. So the passes back
// take one number of the output after the other, and skip zeros.
template <int C, int H, int W, int M, int KH, int KW, int PH, int PW, int OUTPUTS, bool BIASED, bool LOWEST, int FLAT,
          int OWN, int X, int Y, int ARGUMENTS, int GX, int GY>
struct Convolution {
  static constexpr int HIGH = (H - KH + 1) / PH, WIDE = (W - KW + 1) / PW, POSITIONS = HIGH * WIDE;
  static constexpr int KERNEL = KH * KW, FIELD = C * KERNEL, INPUTS_SIZE = C * H * W, BIAS = OWN + M * FIELD;
  static constexpr int TALL = PH + KH - 1, BROAD = PW + KW - 1, TURNS = ceil_of(FIELD, LANES);
  static_assert(M % OUTPUTS == 0);

  static constexpr int SIZE = M * FIELD + (BIASED ? M : 0), FROM = FLAT;
  INSIDE static int place(int i) { return OWN + i; }

  // Where in an image the input with this number of the field lies, from the field's first.
  INSIDE static int offset(int i) { return i / KERNEL * (H * W) + i % KERNEL / KW * W + i % KW; }

  // The first of the field that output number i was largest in.
  INSIDE static int origin(const byte* arguments, int i) {
    const int largest = PH * PW > 1 ? arguments[i] : 0, p = i % POSITIONS;
    return (p / WIDE * PH + largest / PW) * W + p % WIDE * PW + largest % PW;
  }

  template <int R>
  INSIDE static void forward(const Block& b, const Group<R>& group) {
    static_assert(R == 1);
    const Row& row = group.rows[0];
    float *x = row.scratch, *y = row.write<Y>();
    byte* arguments = reinterpret_cast<byte*>(row.write<ARGUMENTS>());
    each<INPUTS_SIZE>(row.read<X>(), x, Same());
    team_sync();
    for (int item = lane(); item < POSITIONS * (M / OUTPUTS); item += LANES) {
      const int p = item % POSITIONS, o = item / POSITIONS * OUTPUTS;
      const float *corner = x + p / WIDE * PH * W + p % WIDE * PW, *w = b.weights + OWN + o * FIELD;
      float sums[OUTPUTS][PH][PW];
      UNROLL
      for (int k = 0; k < OUTPUTS; ++k) {
        UNROLL
        for (int i = 0; i < PH * PW; ++i) sums[k][i / PW][i % PW] = BIASED ? b.weights[BIAS + o + k] : 0;
      }
      UNROLL_BY("unroll 1")
      for (int c = 0; c < C; ++c) {
        float window[TALL][BROAD];
        UNROLL
        for (int i = 0; i < TALL * BROAD; ++i) window[i / BROAD][i % BROAD] = corner[c * H * W + i / BROAD * W + i % BROAD];
        UNROLL
        for (int k = 0; k < OUTPUTS; ++k) {
          UNROLL
          for (int j = 0; j < KERNEL; ++j) {
            const float own = w[k * FIELD + c * KERNEL + j];
            UNROLL
            for (int i = 0; i < PH * PW; ++i)
              sums[k][i / PW][i % PW] += own * window[i / PW + j / KW][i % PW + j % KW];
          }
        }
      }
      UNROLL
      for (int k = 0; k < OUTPUTS; ++k) {
        float most = sums[k][0][0];
        int largest = 0;
        UNROLL
        for (int i = 1; i < PH * PW; ++i) {
          const float other = sums[k][i / PW][i % PW];
          if (other > most || other != other) most = other, largest = i;
        }
        y[(o + k) * POSITIONS + p] = most;
        if (PH * PW > 1) arguments[(o + k) * POSITIONS + p] = byte(largest);
      }
    }
    team_sync();
  }

  template <int R>
  INSIDE static void backward(const Block& b, const Group<R>& group) {
    if constexpr (!LOWEST) {
      const Row& row = group.rows[0];
      const float *g = row.read<GY>(), *w = b.weights + OWN;
      const byte* arguments = reinterpret_cast<const byte*>(row.read<ARGUMENTS>());
      float *below = row.scratch, *to = row.write<GX>();
      for (int i = lane(); i < INPUTS_SIZE; i += LANES) below[i] = 0;
      team_sync();
      int offsets[TURNS];
      UNROLL
      for (int j = 0; j < TURNS; ++j) offsets[j] = offset(j * LANES + lane());
      for (int first = 0; first < M * POSITIONS; first += LANES) {
        const int i = first + lane();
        const bool inside = i < M * POSITIONS;
        const float mine = inside ? g[i] : 0;
        const int mine_at = inside ? origin(arguments, i) : 0;
        for (unsigned live = team_ballot(mine != 0); live; live &= live - 1) {
          const int which = lowest_bit(live);
          const float own = from_lane(mine, which);
          float* field = below + from_lane(mine_at, which);
          const float* of = w + (first + which) / POSITIONS * FIELD;
          UNROLL
          for (int j = 0; j < TURNS; ++j)
            if (j * LANES + lane() < FIELD) field[offsets[j]] += own * of[j * LANES + lane()];
          team_sync();
        }
      }
      each<INPUTS_SIZE>(below, to, Same());
      team_sync();
    }
  }

  // As many rows as there are teams lie in scratch memory at once; each team has some outputs' weights, in registers. A
  // unit is a part of an output's weights.
  template <class Rows>
  INSIDE static int gather(Block& b, const Rows& rows, int turn) {
    constexpr int PARTS = ON_POSITIONS || TURNS < 4 ? 1 : 2, EACH = ON_POSITIONS ? FIELD : ceil_of(TURNS, PARTS);
    constexpr int UNITS = M * PARTS, MOST = ceil_of(UNITS, MOST_TEAMS);
    float sums[MOST][EACH] = {}, bias[MOST] = {};
    for (int chunk = 0; chunk < b.rows; chunk += teams()) {
      const int here = b.rows - chunk < teams() ? b.rows - chunk : teams();
      if (team() < here) each<INPUTS_SIZE>(rows.template read<X>(chunk + team()), rows.scratch(team()), Same());
      block_sync();
      UNROLL
      for (int u = 0; u < MOST; ++u) {
        const int unit = u * teams() + team();
        if (unit >= UNITS) continue;
        const int o = unit / PARTS;
        Sparse next(rows, chunk, o);
        for (int r = 0; r < here; ++r) {
          const Sparse now = next;
          if (r + 1 < here) next = Sparse(rows, chunk + r + 1, o);
          if constexpr (ON_POSITIONS)
            add_positions(now, rows.scratch(r), sums[u], bias[u]);
          else
            add_fields<EACH>(now, rows.scratch(r), unit % PARTS * EACH, sums[u], bias[u]);
        }
      }
      block_sync();
    }
    UNROLL
    for (int u = 0; u < MOST; ++u) {
      const int unit = u * teams() + team();
      if (unit >= UNITS) continue;
      const int o = unit / PARTS, first = unit % PARTS * EACH;
      if constexpr (ON_POSITIONS) {
        team_sums(sums[u]);
        bias[u] = team_sum(bias[u]);
      }
      UNROLL
      for (int j = 0; j < EACH; ++j) {
        const int i = ON_POSITIONS ? j : (first + j) * LANES + lane();
        if (i < FIELD && (!ON_POSITIONS || j % LANES == lane())) b.descend(OWN + o * FIELD + i, FLAT + o * FIELD + i, sums[u][j]);
      }
      if (BIASED && first == 0 && lane() == 0) b.descend(BIAS + o, FLAT + M * FIELD + o, bias[u]);
    }
    return turn;
  }

 private:
  static constexpr bool ON_POSITIONS = FIELD <= 32;  // small fields fit a lane's registers
  static constexpr int BLOCKS = ceil_of(POSITIONS, LANES);

  // A lane's gradients of one output's numbers, and the first of their fields.
  struct Sparse {
    float g[BLOCKS];
    int at[BLOCKS];

    template <class Rows>
    INSIDE Sparse(const Rows& rows, int r, int o) {
      const float* from = rows.template read<GY>(r) + o * POSITIONS;
      const byte* arguments = reinterpret_cast<const byte*>(rows.template read<ARGUMENTS>(r)) + o * POSITIONS;
      UNROLL
      for (int k = 0; k < BLOCKS; ++k) {
        const int p = k * LANES + lane();
        g[k] = p < POSITIONS ? from[p] : 0;
        at[k] = p < POSITIONS ? origin(arguments, p) : 0;
      }
    }
  };

  // Lanes have positions, and sums over theirs alone.
  INSIDE static void add_positions(const Sparse& now, const float* x, float (&sums)[FIELD], float& bias) {
    UNROLL
    for (int k = 0; k < BLOCKS; ++k) {
      if (now.g[k] == 0) continue;
      const float* field = x + now.at[k];
      UNROLL
      for (int j = 0; j < FIELD; ++j) sums[j] += now.g[k] * field[offset(j)];
      bias += now.g[k];
    }
  }

  // Lanes have numbers of the field, and take one position after the other.
  template <int EACH>
  INSIDE static void add_fields(const Sparse& now, const float* x, int first, float (&sums)[EACH], float& bias) {
    int offsets[EACH];
    UNROLL
    for (int j = 0; j < EACH; ++j) {
      const int i = (first + j) * LANES + lane();
      offsets[j] = i < FIELD ? offset(i) : 0;
    }
    UNROLL
    for (int k = 0; k < BLOCKS; ++k) {
      for (unsigned live = team_ballot(now.g[k] != 0); live; live &= live - 1) {
        const int which = lowest_bit(live);
        const float own = from_lane(now.g[k], which);
        const float* field = x + from_lane(now.at[k], which);
        UNROLL
        for (int j = 0; j < EACH; ++j) sums[j] += own * field[offsets[j]];
        bias += own;
      }
    }
  }
};
