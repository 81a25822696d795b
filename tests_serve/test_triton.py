"""tritonclient from PyPI, unchanged, gets answers: as JSON and as binary tensors."""

import numpy as np
import pytest
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from conftest import Service, made_up

Z, _ = made_up(9, 1)


@pytest.mark.parametrize(
    ("kind", "there"),
    [(np.float16, True), *((k, t) for k in (np.float32, np.float64) for t in (True, False))],
)
@pytest.mark.parametrize("back", [True, False, None])
def test_it_gets_answers(service: Service, kind: type, there: bool, back: bool | None) -> None:
    client = InferenceServerClient(service.url.removeprefix("http://"))
    name = {np.float16: "FP16", np.float32: "FP32", np.float64: "FP64"}[kind]
    rows = InferInput("rows", list(Z.shape), name)
    rows.set_data_from_numpy(Z.astype(kind), binary_data=there)
    asked = None
    if back is not None:
        asked = [InferRequestedOutput(n, binary_data=back) for n in ("label", "probability")]
    found = client.infer("birds", [rows], outputs=asked, request_id="r1")
    labels = [x.decode() if isinstance(x, bytes) else x for x in found.as_numpy("label")]
    expected = service.ask("/predict", {"rows": Z.astype(kind).astype(float).tolist()})[1]
    assert labels == expected["labels"]
    np.testing.assert_allclose(found.as_numpy("probability"), expected["probabilities"])
    assert found.get_response()["id"] == "r1"
    client.close()


def test_it_reads_what_there_is(service: Service) -> None:
    client = InferenceServerClient(service.url.removeprefix("http://"))
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("birds")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    about = client.get_model_metadata("birds", "1")
    assert about["inputs"] == [{"name": "rows", "datatype": "FP64", "shape": [-1, 5]}]
    with pytest.raises(InferenceServerException, match="no model"):
        client.get_model_metadata("owls")
    wrong = InferInput("rows", [1, 4], "FP32")
    wrong.set_data_from_numpy(np.zeros((1, 4), dtype=np.float32))
    with pytest.raises(InferenceServerException, match="rows must be"):
        client.infer("birds", [wrong])
    client.close()
