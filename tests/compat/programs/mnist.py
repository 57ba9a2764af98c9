"""A CNN on digits as deltatorch's users write it, on a table of PNG images. Only the import is ours."""

import json
import sys

import torch
import torch.nn.functional as F
from torch import nn, optim
from tqdm import tqdm

from pyloader_delta import FieldSpec, create_pytorch_dataloader


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=3)
        self.fc1 = nn.Linear(90, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        return F.log_softmax(self.fc2(F.relu(self.fc1(x.view(-1, 90)))), dim=1)


def transform(image):
    return torch.tensor(list(image.tobytes()), dtype=torch.float32).reshape(1, 8, 8) / 16 - 0.5


def get_data_loader(path, batch_size):
    return create_pytorch_dataloader(
        path,
        id_field="id",
        fields=[
            FieldSpec("image", load_image_using_pil=True, transform=transform),
            FieldSpec("label"),
        ],
        shuffle=True,
        batch_size=batch_size,
        num_workers=2,
    )


def train_epoch(model, loader, optimizer):
    model.train()
    for batch in tqdm(loader, total=len(loader), disable=None):
        optimizer.zero_grad()
        loss = F.nll_loss(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()


def test(model, loader):
    model.eval()
    correct = 0
    with torch.no_grad():
        for batch in tqdm(loader, total=len(loader), disable=None):
            correct += (model(batch["image"]).argmax(dim=1) == batch["label"]).sum().item()
    return correct / len(loader.dataset)


train_path, test_path, report = sys.argv[1:]
torch.manual_seed(0)
model = Net()
optimizer = optim.Adam(model.parameters(), lr=0.003)
train_loader, test_loader = get_data_loader(train_path, 32), get_data_loader(test_path, 100)
for _ in range(8):
    train_epoch(model, train_loader, optimizer)
found = {"accuracy": test(model, test_loader), "rows": len(train_loader.dataset), "steps": len(train_loader)}
with open(report, "w", encoding="utf-8") as file:
    json.dump(found, file)
