# What all targets share: warnings, the precompiled LibTorch headers, and where test ranks find their objects.
include_guard(GLOBAL)

add_library(fsdp2_warnings INTERFACE)
target_compile_options(fsdp2_warnings INTERFACE -Wall -Wextra -Werror)

# A file that includes LibTorch takes half a minute without this.
if(FSDP2_WITH_TORCH)
  add_library(fsdp2_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch.cpp")
  target_link_libraries(fsdp2_pch PRIVATE torch::libtorch fsdp2_warnings)
  target_precompile_headers(fsdp2_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/pch.hpp")
endif()

# fsdp2_use_torch(<target>): compiles and links the target against LibTorch, with the precompiled headers. They fit only
# where flags and definitions are equal: give such a target no compile definitions or options of its own.
function(fsdp2_use_torch target)
  get_target_property(_type ${target} TYPE)
  target_link_libraries(${target} PUBLIC torch::libtorch PRIVATE fsdp2_warnings)
  target_precompile_headers(${target} REUSE_FROM fsdp2_pch)
  if(_type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES BUILD_RPATH "${FSDP2_TORCH_LIBRARY_DIRS}")
  endif()
endfunction()

# The same for a program of GoogleTest: unoptimised, since it is compiled more often than it computes, and with headers that
# tests share. The product's objects that it links are optimised as ever.
function(fsdp2_use_torch_in_test target)
  if(NOT TARGET fsdp2_test_pch)
    find_package(GTest REQUIRED)
    add_library(fsdp2_test_pch OBJECT "${PROJECT_SOURCE_DIR}/cmake/pch.cpp")
    target_link_libraries(fsdp2_test_pch PRIVATE torch::libtorch fsdp2_warnings GTest::gtest)
    target_compile_options(fsdp2_test_pch PRIVATE -O0)
    target_precompile_headers(fsdp2_test_pch PRIVATE "${PROJECT_SOURCE_DIR}/cmake/test_pch.hpp")
  endif()
  get_target_property(_type ${target} TYPE)
  target_link_libraries(${target} PUBLIC torch::libtorch GTest::gtest PRIVATE fsdp2_warnings)
  target_compile_options(${target} PRIVATE -O0)
  target_precompile_headers(${target} REUSE_FROM fsdp2_test_pch)
  if(_type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES BUILD_RPATH "${FSDP2_TORCH_LIBRARY_DIRS}")
  endif()
endfunction()
