# LibTorch from a PyPI wheel, as the imported target `torch::libtorch`.
#
# find_package(Torch) is not used: it fails where there is no CUDA toolkit, and with one it wants a GPU to ask and a list of
# architectures, though no kernel is compiled here. The include and lib folders of the wheel are all that is needed.
#
# Out: torch::libtorch, FSDP2_TORCH_VERSION, FSDP2_TORCH_LIBRARY_DIRS (torch/lib first), FSDP2_CUDA_ENABLED, and FSDP2_PYTHON,
# the interpreter of that wheel, for what tests export.
include_guard(GLOBAL)

set(FSDP2_CUDA "AUTO" CACHE STRING "CUDA and NCCL: AUTO (where a toolkit is found), ON or OFF")
set_property(CACHE FSDP2_CUDA PROPERTY STRINGS AUTO ON OFF)

set(FSDP2_TORCH_DIR "" CACHE PATH "The folder `torch` of a wheel (empty: the one in .venv)")
set(_torch "${FSDP2_TORCH_DIR}")
if(NOT _torch)
  file(GLOB _candidates "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch")
  list(LENGTH _candidates _count)
  if(_count EQUAL 1)
    set(_torch "${_candidates}")
  endif()
endif()
if(NOT EXISTS "${_torch}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch is missing. `bash tests/run.sh` and `bash samples/quickstart.sh` install it into .venv; "
                      "or give the folder `torch` of a wheel with -DFSDP2_TORCH_DIR=...")
endif()
get_filename_component(_site "${_torch}" DIRECTORY)

cmake_path(ABSOLUTE_PATH _site BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
find_program(FSDP2_PYTHON python3 HINTS "${_site}/../../../bin" REQUIRED)

file(STRINGS "${_torch}/version.py" _line REGEX "^__version__ = ")
string(REGEX REPLACE ".*'([0-9.]+).*" "\\1" FSDP2_TORCH_VERSION "${_line}")
file(STRINGS "${_torch}/version.py" _line REGEX "^cuda.* = ")
set(_wheel_cuda "")
if(_line MATCHES "'([0-9]+)\\.([0-9]+)'")
  set(_wheel_cuda "${CMAKE_MATCH_1}")
endif()

# The standard library's ABI, where the wheel names one; newer wheels have the compiler's default.
set(_cxx11_abi "")
file(STRINGS "${_torch}/share/cmake/Torch/TorchConfig.cmake" _line REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
if(_line MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
  set(_cxx11_abi "_GLIBCXX_USE_CXX11_ABI=${CMAKE_MATCH_1}")
endif()

# ---- CUDA: the toolkit's headers, the wheel's own libraries -----------------------------------------------------------
# A toolkit counts when nvcc is on PATH or CUDA_HOME or CUDA_PATH names it, not when it merely lies in a usual folder.
set(FSDP2_CUDA_ENABLED OFF)
set(_why "FSDP2_CUDA is OFF")
if(NOT FSDP2_CUDA STREQUAL "OFF")
  find_program(FSDP2_NVCC nvcc PATHS ENV CUDA_HOME ENV CUDA_PATH PATH_SUFFIXES bin NO_CMAKE_SYSTEM_PATH)
  if(NOT FSDP2_NVCC)
    set(_why "no nvcc on PATH, in CUDA_HOME or in CUDA_PATH")
  elseif(NOT _wheel_cuda)
    set(_why "the wheel in ${_torch} is built without CUDA")
  elseif(NOT EXISTS "${_torch}/lib/libtorch_cuda.so" OR NOT EXISTS "${_site}/nvidia/nccl/lib/libnccl.so.2")
    set(_why "the wheel's CUDA or NCCL libraries are missing")
  else()
    file(REAL_PATH "${FSDP2_NVCC}" _nvcc)
    get_filename_component(_bin "${_nvcc}" DIRECTORY)
    get_filename_component(CUDAToolkit_ROOT "${_bin}" DIRECTORY)
    find_package(CUDAToolkit QUIET)
    if(NOT CUDAToolkit_FOUND)
      set(_why "${FSDP2_NVCC} is there, its toolkit is not complete")
    elseif(NOT CUDAToolkit_VERSION_MAJOR EQUAL _wheel_cuda)
      set(_why "the toolkit is CUDA ${CUDAToolkit_VERSION}, the wheel wants CUDA ${_wheel_cuda}")
    else()
      set(FSDP2_CUDA_ENABLED ON)
    endif()
  endif()
  if(FSDP2_CUDA STREQUAL "ON" AND NOT FSDP2_CUDA_ENABLED)
    message(FATAL_ERROR "FSDP2_CUDA is ON, but ${_why}.")
  endif()
endif()

# ---- targets ----------------------------------------------------------------------------------------------------------
function(_fsdp2_import name file)
  add_library(torch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(torch::${name} PROPERTIES IMPORTED_LOCATION "${file}")
endfunction()

_fsdp2_import(c10 "${_torch}/lib/libc10.so")
_fsdp2_import(torch_cpu "${_torch}/lib/libtorch_cpu.so")
set(FSDP2_TORCH_LIBRARY_DIRS "${_torch}/lib")

add_library(torch::libtorch INTERFACE IMPORTED GLOBAL)
target_include_directories(torch::libtorch SYSTEM INTERFACE "${_torch}/include" "${_torch}/include/torch/csrc/api/include")
# Gloo is inside libtorch_cpu; only its headers come from elsewhere (Debian's libgloo-dev). Its own library must not be
# linked: two copies of Gloo in a process would not know each other's objects.
target_compile_definitions(torch::libtorch INTERFACE USE_C10D_GLOO ${_cxx11_abi})
find_package(Threads REQUIRED)

if(FSDP2_CUDA_ENABLED)
  _fsdp2_import(c10_cuda "${_torch}/lib/libc10_cuda.so")
  _fsdp2_import(torch_cuda "${_torch}/lib/libtorch_cuda.so")
  _fsdp2_import(nccl "${_site}/nvidia/nccl/lib/libnccl.so.2")
  list(APPEND FSDP2_TORCH_LIBRARY_DIRS "${_site}/nvidia/nccl/lib" "${_site}/nvidia/cu${_wheel_cuda}/lib")
  target_include_directories(torch::libtorch SYSTEM INTERFACE "${_site}/nvidia/nccl/include" ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(torch::libtorch INTERFACE USE_C10D_NCCL FSDP2_WITH_CUDA)
  # torch_cuda registers its kernels when it is loaded: it is needed even where no symbol of it is used.
  target_link_libraries(torch::libtorch INTERFACE -Wl,--no-as-needed torch::torch_cuda torch::c10_cuda torch::nccl
                                                  CUDA::cudart)
endif()
target_link_libraries(torch::libtorch INTERFACE torch::torch_cpu torch::c10 Threads::Threads)

if(FSDP2_CUDA_ENABLED)
  message(STATUS "LibTorch ${FSDP2_TORCH_VERSION} with CUDA ${CUDAToolkit_VERSION} and NCCL")
else()
  message(STATUS "LibTorch ${FSDP2_TORCH_VERSION}, CPU only (${_why})")
endif()
