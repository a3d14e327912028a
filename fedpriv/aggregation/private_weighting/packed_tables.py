"""How to lay out tables of joint products, so that a weighted product takes the fewest
multiplications.

Write a coordinate, lifted by a public offset so that it is not negative, in b bits. For a group of
t users, a table of their 2^t subset products turns each bit of all t coordinates into a single
look-up and multiplication, where windows for every user alone would take about t / 5. That is the
part that grows with users times parameters: b / t each.

Packing shifts slot j by W j bits. There are three ways to pay for it:
- to make every parameter's ciphertext and then shift by squarings (Horner's rule): W + b squarings
  a parameter;
- one chain of squarings over the packed exponent of slots * W bits, with look-ups only at each
  slot's b low bits: W squarings a parameter. The b squarings of Horner's rule coincide with W's, so
  this is never worse;
- to shift the users' ciphertexts once a round, and give each slot tables of its own: no squarings
  per parameter, but `slots` times as many tables.
The last two are the ends of a scale: with c shifted copies of the users' ciphertexts, a chain
covers slots / c of the slots (C. H. Lim and P. J. Lee, More flexible exponentiation with
precomputation, CRYPTO 1994). All of this is the silo's work. The server decrypts a packed
ciphertext like any other, so its work and the upload shrink by `slots` either way; packing at the
server would cost it the same squarings, and the silo `slots` times the bytes and residues.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedpriv.encoding.slot_layout import SlotLayout

MEMORY = 2**30
"""Bytes that the tables of a silo may take."""
LARGEST_TABLE = 20
SQUARING = 0.8
"""Time of a squaring in multiplications, as measured at 3072 bits."""


@dataclass(frozen=True)
class TablePlan:
    """chain: slots that one chain of squarings covers.
    copies: shifted copies of the users' ciphertexts, enough to cover all slots.
    groups: sets of users with a joint table each; their sizes differ by at most one.
    work: time in multiplications, but for what all plans do.
    """

    chain: int
    copies: int
    groups: int
    table_entries: int
    work: float


def even_ranges(count: int, parts: int) -> list[range]:
    """0..count-1 cut into at most `parts` ranges whose lengths differ by at most one. None is empty
    unless count is 0."""
    parts = max(1, min(parts, count))
    return [range(count * k // parts, count * (k + 1) // parts) for k in range(parts)]


def entry_bytes(key_bits: int) -> int:
    """Memory of one table entry: a tuple of two integers, with their headers."""
    return key_bits // 4 + 190


def used_slots(layout: SlotLayout, dimension: int) -> int:
    """Slots of a column that hold a parameter: fewer than the layout's only when there are fewer
    parameters."""
    return min(layout.slots, dimension)


def best_plan(layout: SlotLayout, users: int, dimension: int, *, memory: int = MEMORY) -> TablePlan:
    """The plan with the least work whose tables fit `memory` bytes. If none fits, the one with the
    smallest tables."""
    slots = used_slots(layout, dimension)
    numbers = sorted({-(-users // size) for size in range(1, LARGEST_TABLE + 1)})
    plans = [
        make_plan(layout, users, dimension, groups=groups, chain=chain)
        for chain in range(1, slots + 1)
        for groups in numbers
    ]
    room = max(memory // entry_bytes(layout.key_bits), min(plan.table_entries for plan in plans))
    return min((plan for plan in plans if plan.table_entries <= room), key=lambda plan: plan.work)


def make_plan(
    layout: SlotLayout, users: int, dimension: int, *, groups: int, chain: int
) -> TablePlan:
    """The plan for `groups` groups of users and chains of `chain` slots, with its costs."""
    slots = used_slots(layout, dimension)
    columns = layout.columns(dimension)
    bits = layout.coordinate_bits
    copies = -(-slots // chain)
    entries = copies * sum(1 << len(group) for group in even_ranges(users, groups))
    shifts = users * (copies - 1) * chain * layout.width
    squarings = shifts + columns * ((chain - 1) * (layout.width - bits) + chain * bits)
    work = entries + columns * slots * bits * groups + SQUARING * squarings
    return TablePlan(chain=chain, copies=copies, groups=groups, table_entries=entries, work=work)
