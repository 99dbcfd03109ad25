// The precompiled header of tests.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/optimizer.h>

#include "cmake/pch.hpp"
