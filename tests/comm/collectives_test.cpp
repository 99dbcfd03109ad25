// Values, bits and sizes of the collectives over Gloo, on 1 to 4 ranks.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "plugin/abi/given_groups.hpp"
#include "plugin/engine/c10d_communicator.hpp"
#include "tests/comm/forked_ranks.hpp"
#include "tests/comm/gloo_group.hpp"

namespace fsdp2::testing {
namespace {

constexpr double kLimit = 60;

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  using Body = std::function<void(Communicator& communicator, int rank, int world)>;

  static void on_ranks(const Body& body) {
    const int world = GetParam();
    const ScratchFolder scratch;
    const auto outcomes = run_ranks(world, kLimit, [&](int rank) {
      auto communicator =
          C10dCommunicator::from_backend(gloo_group(scratch.path("store"), rank, world), Timeout(30000));
      body(*communicator, rank, world);
    });
    EXPECT_EQ(describe(outcomes), "");
  }
};

/// A rank's values: whole numbers, exact in every dtype and different for each rank and place.
at::Tensor values(int64_t elements, int rank, at::ScalarType dtype) {
  return (at::arange(elements, at::kLong) * 3 + rank * 5).remainder(101).to(dtype);
}

/// Values that no dtype sums exactly.
at::Tensor fractions(int64_t elements, int rank, at::ScalarType dtype) {
  return (values(elements, rank, at::kDouble) / 7 + 0.1).to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.view(at::kByte), b.view(at::kByte));
}

TEST_P(Collectives, AllGatherMovesEveryDtypeAndSize) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte}) {
      for (const int64_t elements : {0, 1, 7, 4096, 300000}) {
        const at::Tensor own = values(elements, rank, dtype);
        at::Tensor output = at::zeros({elements * world}, dtype);
        communicator.all_gather(output, own)->wait();
        for (int r = 0; r < world; ++r) {
          require(at::equal(output.narrow(0, r * elements, elements), values(elements, r, dtype)),
                  std::string("wrong values from rank ") + std::to_string(r) + " in " + c10::toString(dtype));
        }
      }
    }
  });
}

TEST_P(Collectives, AllGatherInputMayBeTheOwnPart) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    at::Tensor output = at::zeros({world * 1000});
    at::Tensor own = output.narrow(0, rank * 1000, 1000);
    own.copy_(values(1000, rank, at::kFloat));
    communicator.all_gather(output, own)->wait();
    for (int r = 0; r < world; ++r) {
      require(at::equal(output.narrow(0, r * 1000, 1000), values(1000, r, at::kFloat)), "wrong values");
    }
  });
}

TEST_P(Collectives, ReduceScatterSumsInRankOrder) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    for (const auto dtype : {at::kFloat, at::kDouble}) {
      for (const int64_t elements : {0, 1, 1025, 200000}) {
        at::Tensor expected = at::zeros({elements}, dtype);
        for (int r = 0; r < world; ++r) {
          const at::Tensor part = fractions(elements * world, r, dtype).narrow(0, rank * elements, elements);
          if (r == 0) {
            expected.copy_(part);
          } else {
            expected.add_(part);
          }
        }
        expected.div_(world);
        at::Tensor output = at::full({elements}, -1, dtype);
        communicator.reduce_scatter(output, fractions(elements * world, rank, dtype), world)->wait();
        require(same_bits(output, expected), std::string("other bits in ") + c10::toString(dtype));
      }
    }
  });
}

TEST_P(Collectives, ReduceScatterRoundsSmallDtypesOnce) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    for (const auto dtype : {at::kBFloat16, at::kHalf}) {
      const int64_t elements = 3000;
      at::Tensor sum = at::zeros({elements});
      for (int r = 0; r < world; ++r) {
        sum.add_(fractions(elements * world, r, dtype).narrow(0, rank * elements, elements).to(at::kFloat));
      }
      at::Tensor output = at::zeros({elements}, dtype);
      communicator.reduce_scatter(output, fractions(elements * world, rank, dtype), world)->wait();
      require(same_bits(output, sum.div(world).to(dtype)), std::string("other bits in ") + c10::toString(dtype));
    }
  });
}

TEST_P(Collectives, TimingDoesNotChangeABit) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    const at::Tensor input = fractions(5000 * world, rank, at::kFloat);
    at::Tensor first = at::zeros({5000});
    communicator.reduce_scatter(first, input.clone(), world)->wait();
    for (int late = 0; late < world; ++late) {
      if (rank == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      at::Tensor again = at::zeros({5000});
      communicator.reduce_scatter(again, input.clone(), world)->wait();
      require(same_bits(first, again), "other bits when rank " + std::to_string(late) + " is late");
    }
  });
}

TEST_P(Collectives, AllReduceGivesTheBitsOfReduceScatterOnEveryRank) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      for (const int64_t part : {1, 2048, 50000}) {
        const at::Tensor input = fractions(part * world, rank, dtype);
        at::Tensor scattered = at::zeros({part}, dtype);
        communicator.reduce_scatter(scattered, input.clone(), world)->wait();
        at::Tensor expected = at::zeros({part * world}, dtype);
        communicator.all_gather(expected, scattered)->wait();
        at::Tensor reduced = input.clone();
        communicator.all_reduce(reduced, world)->wait();
        require(same_bits(reduced, expected), std::string("other bits in ") + c10::toString(dtype));
      }
    }
  });
}

TEST_P(Collectives, AllReduceOfFewerElementsThanRanks) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    for (const int64_t elements : {0, 1, 2, 3, 5}) {
      at::Tensor tensor = at::full({elements}, rank + 1.0);
      communicator.all_reduce(tensor, world)->wait();
      require(at::equal(tensor, at::full({elements}, (world + 1) / 2.0)), std::to_string(elements) + " elements");
    }
  });
}

TEST_P(Collectives, SeveralInFlightAreWaitedForInAnyOrder) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    at::Tensor a = at::zeros({world * 100});
    at::Tensor b = at::zeros({world * 50000});
    at::Tensor mean = at::zeros({1000});
    auto first = communicator.all_gather(a, values(100, rank, at::kFloat));
    auto second = communicator.reduce_scatter(mean, at::full({world * 1000}, rank + 1.0), world);
    auto third = communicator.all_gather(b, values(50000, rank, at::kFloat));
    third->wait();
    second->wait();
    first->wait();
    first->wait();  // a second wait does nothing
    require(at::equal(mean, at::full({1000}, (world + 1) / 2.0)), "wrong mean");
    for (int r = 0; r < world; ++r) {
      require(at::equal(a.narrow(0, r * 100, 100), values(100, r, at::kFloat)), "wrong values in the first");
      require(at::equal(b.narrow(0, r * 50000, 50000), values(50000, r, at::kFloat)), "wrong values in the third");
    }
  });
}

TEST_P(Collectives, WorkOnMatricesAndParametersThatWantGradients) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    const at::Tensor own = values(12, rank, at::kFloat).view({3, 4}).requires_grad_();
    at::Tensor output = at::zeros({world * 3, 4});
    communicator.all_gather(output, own)->wait();
    require(!output.requires_grad(), "the output has become part of an autograd graph");
    require(at::equal(output.narrow(0, rank * 3, 3), own), "wrong values");
  });
}

TEST_P(Collectives, SumsAreDividedByTheDivisor) {
  on_ranks([](Communicator& communicator, int rank, int world) {
    at::Tensor output = at::zeros({100});
    communicator.reduce_scatter(output, at::full({world * 100}, rank + 1.0), 4)->wait();
    require(at::equal(output, at::full({100}, world * (world + 1) / 8.0)), "reduce_scatter");
    at::Tensor sum = at::full({100}, rank + 1.0);
    communicator.all_reduce(sum, 1)->wait();
    require(at::equal(sum, at::full({100}, world * (world + 1) / 2.0)), "all_reduce");
  });
}

TEST_P(Collectives, BroadcastGivesRank0sBits) {
  on_ranks([](Communicator& communicator, int rank, int /*world*/) {
    for (const auto dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kBool}) {
      for (const int64_t elements : {0, 1, 7, 30000}) {
        at::Tensor tensor = values(elements, rank, dtype);
        communicator.broadcast(tensor)->wait();
        require(at::equal(tensor, values(elements, 0, dtype)), std::string("wrong values in ") + c10::toString(dtype));
      }
    }
  });
}

/// Rows {0, 1}, {2, 3} and columns {0, 2}, {1, 3}, in flight together.
TEST(Groups, OfAMeshCommunicateApart) {
  const ScratchFolder scratch;
  const auto outcomes = run_ranks(4, kLimit, [&](int rank) {
    auto world = C10dCommunicator::from_backend(gloo_group(scratch.path("store"), rank, 4), Timeout(30000));
    const int64_t row = rank / 2;
    const int64_t column = rank % 2;
    const auto shard = world->split({2 * row, 2 * row + 1});
    const auto replicate = world->split({column, column + 2});
    require(shard->size() == 2 && shard->rank() == column && shard->world_rank() == rank, "shard");
    require(replicate->size() == 2 && replicate->rank() == row && replicate->world_rank() == rank, "replicate");
    at::Tensor all = at::zeros({4});
    at::Tensor of_row = at::zeros({2});
    at::Tensor of_column = at::full({1000}, static_cast<double>(rank));
    auto first = world->all_gather(all, at::full({1}, static_cast<double>(rank)));
    auto second = shard->all_gather(of_row, at::full({1}, static_cast<double>(rank)));
    auto third = replicate->all_reduce(of_column, 2);
    third->wait();
    second->wait();
    first->wait();
    require(at::equal(all, at::arange(4).to(at::kFloat)), "world");
    require(at::equal(of_row, at::arange(2).to(at::kFloat) + 2.0 * static_cast<double>(row)), "row");
    require(at::equal(of_column, at::full({1000}, column + 1.0)), "column");
  });
  EXPECT_EQ(describe(outcomes), "");
}

/// A host's own groups stand for what a mesh would split; blocks of a row are split from the row.
TEST(Groups, OfTheHostStandForThoseOfTheMesh) {
  const ScratchFolder scratch;
  const auto outcomes = run_ranks(4, kLimit, [&](int rank) {
    const std::shared_ptr<Communicator> world =
        C10dCommunicator::from_backend(gloo_group(scratch.path("store"), rank, 4), Timeout(30000));
    const int64_t row = rank / 2;
    const int64_t column = rank % 2;
    const auto shard = world->split({2 * row, 2 * row + 1});
    const auto replicate = world->split({column, column + 2});
    GivenGroups mesh(world, shard, replicate);
    require(mesh.split({2 * row, 2 * row + 1}) == shard, "the row");
    require(mesh.split({column, column + 2}) == replicate, "the column");
    GivenGroups one_row(world, world, nullptr);
    const int64_t first = rank / 2 * 2;
    const auto block = one_row.split({first, first + 1});
    require(block != world && block->size() == 2 && block->rank() == rank - first, "the block");
    GivenGroups other(world, world->split({rank}), replicate);
    std::string fault;
    try {
      other.split({2 * row, 2 * row + 1});
    } catch (const Error& error) {
      fault = error.what();
    }
    require(fault.starts_with("shard_communicator: this is rank 0 of 1 there, and the mesh wants rank " +
                              std::to_string(column) + " of 2"),
            fault);
  });
  EXPECT_EQ(describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace fsdp2::testing
