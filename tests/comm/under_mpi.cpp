// Started by mpirun on any number of ranks: collectives over an MPI_Comm, and what happens when a rank does not answer.
// Exits with 1 and the reason where a rank finds something wrong.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/Parallel.h>
#include <fsdp2/mpi.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>

#include "plugin/abi/callback_communicator.hpp"
#include "registry/error.hpp"

namespace {

using namespace fsdp2;

int rank = 0;
int world = 1;

void require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "rank %d: %s\n", rank, what.c_str());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/// Values that no dtype sums exactly, of one rank.
at::Tensor values(int64_t elements, int of, at::ScalarType dtype) {
  return (((at::arange(elements, at::kLong) * 3 + of * 5).remainder(101)).to(at::kDouble) / 7 + 0.1).to(dtype);
}

/// Sums in rank order in the dtype's wide type, one division, one rounding.
at::Tensor expected_mean(int64_t elements, at::ScalarType dtype) {
  const auto wide = at::toOpMathType(dtype);
  at::Tensor sum = values(elements, 0, dtype).to(wide);
  for (int r = 1; r < world; ++r) sum = sum + values(elements, r, dtype).to(wide);
  return (sum / world).to(dtype);
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return at::equal(a.contiguous().view(at::kByte), b.contiguous().view(at::kByte));
}

void check_collectives(Communicator& communicator, const std::string& title) {
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const int64_t elements : {0, 1, 7, 4099}) {
      const std::string what = title + ", " + c10::toString(dtype) + ", " + std::to_string(elements) + " elements";
      at::Tensor all = at::zeros({world * elements}, dtype);
      communicator.all_gather(all, values(elements, rank, dtype))->wait();
      at::Tensor in_place = at::zeros({world * elements}, dtype);
      in_place.narrow(0, rank * elements, elements).copy_(values(elements, rank, dtype));
      communicator.all_gather(in_place, in_place.narrow(0, rank * elements, elements))->wait();
      for (int r = 0; r < world; ++r) {
        const at::Tensor wanted = values(elements, r, dtype);
        require(same_bits(all.narrow(0, r * elements, elements), wanted), "all_gather, " + what);
        require(same_bits(in_place.narrow(0, r * elements, elements), wanted), "all_gather in place, " + what);
      }
      at::Tensor mean = at::zeros({elements}, dtype);
      communicator.reduce_scatter(mean, values(world * elements, rank, dtype), world)->wait();
      const at::Tensor whole = expected_mean(world * elements, dtype);
      require(same_bits(mean, whole.narrow(0, rank * elements, elements)), "reduce_scatter, " + what);
      at::Tensor everywhere = values(elements, rank, dtype);
      communicator.all_reduce(everywhere, world)->wait();
      require(same_bits(everywhere, expected_mean(elements, dtype)), "all_reduce, " + what);
    }
  }
  at::Tensor sent = values(4099, rank, at::kFloat);
  communicator.broadcast(sent)->wait();
  require(same_bits(sent, values(4099, 0, at::kFloat)), "broadcast, " + title);
  if (world > 1) {
    // The first rank alone, and the others.
    std::vector<int64_t> members;
    for (int r = rank == 0 ? 0 : 1; r < (rank == 0 ? 1 : world); ++r) members.push_back(r);
    const auto part = communicator.split(members);
    at::Tensor ranks = at::full({10}, static_cast<double>(rank));
    part->all_reduce(ranks, static_cast<double>(members.size()))->wait();
    require(at::equal(ranks, at::full({10}, rank == 0 ? 0.0 : world / 2.0)), "a part's mean, " + title);
    require(part->world_rank() == rank, "a part's rank, " + title);
  }
  // Two in flight.
  at::Tensor first = at::zeros({world * 1000}, at::kFloat);
  at::Tensor second = at::zeros({world * 3000}, at::kFloat);
  const at::Tensor own_first = values(1000, rank, at::kFloat);
  const at::Tensor own_second = values(3000, rank, at::kFloat);
  auto one = communicator.all_gather(first, own_first);
  auto two = communicator.all_gather(second, own_second);
  two->wait();
  one->wait();
  require(same_bits(first.narrow(0, 0, 1000), values(1000, 0, at::kFloat)), "two in flight, " + title);
  require(same_bits(second.narrow(0, 0, 3000), values(3000, 0, at::kFloat)), "two in flight, " + title);
}

/// The text of the Error that `act` throws.
std::string fault_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

void require_text(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "expected \"" + part + "\", got: " + text);
}

void check_refused_tables(const fsdp2_communicator& good) {
  const auto refused = [&](const std::function<void(fsdp2_communicator&)>& spoil) {
    fsdp2_communicator table = good;
    spoil(table);
    return fault_of([&] { CallbackCommunicator(table, Timeout(1000)); });
  };
  require_text(refused([](auto& t) { t.world_size = 0; }), "fsdp2_communicator.world_size is 0");
  require_text(refused([](auto& t) { t.rank = t.world_size; }), "fsdp2_communicator.rank is");
  require_text(refused([](auto& t) { t.all_gather = nullptr; }), "all_gather is null");
  require_text(refused([](auto& t) { t.all_to_all = nullptr; }), "all_to_all is null");
  require_text(refused([](auto& t) { t.test = nullptr; }), "test is null");
}

void check_one_thread(fsdp2_communicator table) {
  table.one_thread = 1;
  CallbackCommunicator communicator(table, Timeout(10000));
  at::Tensor all = at::zeros({world}, at::kFloat);
  communicator.all_gather(all, at::ones({1}))->wait();
  std::string fault;
  std::thread([&] { fault = fault_of([&] { communicator.all_gather(all, at::ones({1}))->wait(); }); }).join();
  require_text(fault, "may be called by one thread only");
  communicator.all_gather(all, at::ones({1}))->wait();
}

void check_time_out() {
  auto* group = new MpiCommunicator(MPI_COMM_WORLD);  // a transfer that was given up may go on in it
  CallbackCommunicator communicator(group->table(), Timeout(700));
  at::Tensor all = at::zeros({world * 100000}, at::kFloat);
  const auto gather = [&] { communicator.all_gather(all, at::ones({100000}))->wait(); };
  if (rank == world - 1) {
    std::this_thread::sleep_for(std::chrono::seconds(2));
    gather();  // late: the others have given up, and what they began can end
  } else {
    const std::string fault = fault_of(gather);
    require_text(fault, "rank " + std::to_string(rank) + ": all_gather of " + std::to_string(world * 400000) +
                            " bytes failed: the other ranks did not answer within");
    require_text(fault_of(gather), "an earlier collective failed");
  }
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &threads);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  at::set_num_threads(1);
  {
    const MpiCommunicator group(MPI_COMM_WORLD);
    CallbackCommunicator communicator(group.table(), Timeout(20000));
    check_collectives(communicator, "whole");
    check_refused_tables(group.table());
    check_one_thread(group.table());
    // As counts beyond 31 bits go, at the size of a test: no transfer carries more than 1000 bytes.
    const MpiCommunicator small(MPI_COMM_WORLD, 1000);
    CallbackCommunicator in_pieces(small.table(), Timeout(20000));
    check_collectives(in_pieces, "in pieces");
  }
  if (world > 1) check_time_out();
  MPI_Barrier(MPI_COMM_WORLD);
  std::printf("rank %d of %d is done\n", rank, world);
  MPI_Finalize();
}
